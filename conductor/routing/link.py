"""A connection as a component of the chain: its one or two ports, its dialect, its envelope.

A proxy that is a process has one connection that carries two peers: plain messages are traffic with
its predecessor, `proxy/successor` is traffic with its successor. A client or an agent has only the
plain port; a parent conductor (proxy mode) has both: it is the client and, in the envelope, the
successor. The link keeps its place in the chain when the process behind it is replaced.

`Link` receives what the peer sends: it is the `Receiver` of its connection. `link_port` sends to
the peer, and has the state that both share; `control` handles messages for the conductor itself.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET

from conductor.acp import (
    MCP_METHODS,
    NOTIFICATIONS,
    PROMPT,
    REQUESTS,
    message_names,
)
from conductor.errors import RequestError, details_are_withheld
from conductor.jsonrpc.codec import Malformed
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import (
    INTERNAL_ERROR,
    Payload,
    RawMember,
    encode_error,
    exception_to_error,
)
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.control import (
    CONTROL_METHODS,
    control_notification,
    control_notifications,
    control_request,
)
from conductor.routing.failure_errors import Disconnected, FailureErrors, answer_of_gone
from conductor.routing.link_port import CLIENT_ROLES, LinkPort, LinkState, Report, Role
from conductor.routing.message_queue import Hold, MessageQueue, QueuedMessage
from conductor.routing.session_log import LoggedSetups, SuccessorSetups

__all__ = ["Link"]

_NOT_RUNNING: Final = FailureErrors.plain(
    encode_error(INTERNAL_ERROR, "The component is not running")
)


class Link(LinkState):
    """The connection of one component, client or parent conductor, with its ports."""

    def __init__(self, name: str, role: Role, report: Report) -> None:
        super().__init__(name, role, report)
        self.plain: LinkPort = LinkPort(self, is_enveloped=False)
        has_successor = role in ("proxy", "parent")
        self.enveloped: LinkPort | None = (
            LinkPort(self, is_enveloped=True) if has_successor else None
        )
        self._holds: list[Hold] = []
        self._disconnected: list[Disconnected] = []
        self.refuse(_NOT_RUNNING)
        self.plain.insert(LoggedSetups(self.session_log, is_sender=role in CLIENT_ROLES))
        if self.enveloped is not None:
            if role == "parent":  # its sessions are logged when they come from it
                self.enveloped.insert(LoggedSetups(self.session_log, frozenset({"initialize"})))
            else:
                self.enveloped.insert(SuccessorSetups(self.session_log))

    @property
    def ports(self) -> list[LinkPort]:
        """Its one or two ports."""
        return [self.plain] if self.enveloped is None else [self.plain, self.enveloped]

    def connect(self, connection: Connection) -> None:
        """The peer is connected: the first time, or in the place of one that was disconnected."""
        super().connect(connection)
        self._stop_refusing()

    def refuse(self, errors: FailureErrors, *, is_reading: bool = False) -> None:
        """From now on, requests to the peer are answered with these errors, until it is connected.

        A peer that has only closed its output may still be reading notifications; these errors stay
        when it is disconnected then.
        """
        self._stop_refusing(but_readers=True)
        for port in self.ports:
            self._disconnected.append(stage := Disconnected(errors, is_reading=is_reading))
            port.insert(stage)

    def _stop_refusing(self, *, but_readers: bool = False) -> None:
        stopped = [each for each in self._disconnected if not (but_readers and each.is_reading)]
        for each in stopped:
            each.port.remove(each)
            self._disconnected.remove(each)

    def start_queueing(self) -> None:
        """Queue messages for the component until `release_queue` or `release_queue_past`."""
        self.queue = MessageQueue()
        for port in self.ports:
            self._holds.append(hold := Hold(self.queue))
            port.insert(hold)

    def release_queue(self) -> None:
        """Send the queued messages to the component, in order.

        If it is no longer connected, each request is answered with the error of that.
        """
        holds: dict[object, Hold] = {each.port: each for each in self._holds}

        def send(message: QueuedMessage) -> None:
            hold = holds[message.port]
            hold.port.send(hold, message.call, message.method, message.params)

        self._take_queue().release(send)

    def release_queue_past(self) -> None:
        """Send the queued messages to the neighbour beyond the component, which is bypassed."""
        self._take_queue().release(self._send_past)

    def _take_queue(self) -> MessageQueue:
        """Stop queueing; returns the queue, an empty one if there was none."""
        for each in self._holds:
            each.port.remove(each)
        self._holds.clear()
        queue, self.queue = self.queue or MessageQueue(), None
        return queue

    def _send_past(self, message: QueuedMessage) -> None:
        assert self.enveloped is not None
        beyond = self.plain if message.port is self.enveloped else self.enveloped
        message.send_to(beyond.neighbour)

    def fail_request(self, call: InFlightRequest, reason: str, waited: float) -> None:
        """Answer a request in the component's place with an error, and cancel it there."""
        self.plain.cancel(call)
        error = encode_error(INTERNAL_ERROR, reason, {"component": self.name})
        self.answer_in_place(call, None, error, waited)

    def answer_in_place(
        self,
        call: InFlightRequest,
        result: RawMember,
        error: RawMember,
        waited: float | None = None,
    ) -> None:
        """Answer a request in the component's place; its own late response will be dropped.

        It was sent `waited` seconds ago, if that is known.
        """
        connection = self.connection
        if connection is None or connection.sent.get(call.target_id) is not call:
            return
        del connection.sent[call.target_id]
        self.expect_late_answer(call, waited)
        self.on_response(call, result, error)

    def unanswered_prompts(self, session: str) -> list[InFlightRequest]:
        """The peer's own prompts for this session."""
        own = [] if self.connection is None else self.connection.unanswered()
        return [call for call in own if call.method == PROMPT and call.session == session]

    def fail_requests(self, failure: FailureErrors) -> None:
        """Answer the open and queued requests to the peer in its place, with these errors."""
        for call in [] if self.connection is None else list(self.connection.sent.values()):
            why = failure.answer(call.method, delivered=True)
            self.answer_in_place(call, *answer_of_gone(call.method, why))
        queued = [] if self.queue is None else self.queue.remove(lambda each: each.call is not None)
        for each in queued:
            assert each.call is not None
            assert each.port is not None
            why = failure.answer(each.method, delivered=False)
            each.port.neighbour.respond(each.call, *answer_of_gone(each.method, why))

    def on_eof(self, error: bytes) -> None:
        """The peer closed its output but may still read: answer requests to it, open and future
        ones, with the wire error `error`.

        Its MCP requests are cancelled, which it can no longer do itself: a `subscriptions/listen`
        is open until then.
        """
        self.refuse(FailureErrors.plain(error), is_reading=True)
        if self.connection is None:
            return
        for call in self.connection.unanswered():
            if call.method in MCP_METHODS:
                call.cancel()
        owed = list(self.connection.sent.values())
        self.connection.sent.clear()
        for call in owed:
            self.on_response(call, *answer_of_gone(call.method, error))

    def disconnect(self, error: FailureErrors) -> None:
        """The peer is gone: answer the requests to it with the errors of `error`, and cancel its
        own requests on the next hops."""
        connection = self.take_connection()
        self.refuse(error)
        if connection is None:
            return
        connection.abort_writing()
        self.session_log.drop_unanswered()
        owed = list(connection.sent.values())
        connection.sent.clear()
        for call in owed:
            why = error.answer(call.method, delivered=True)
            self.on_response(call, *answer_of_gone(call.method, why))
        unanswered = connection.unanswered()
        connection.received.clear()
        connection.duplicate_id_requests.clear()
        for call in unanswered:
            call.cancel()
            if call.session is not None and self.role == "proxy" and self.enveloped is not None:
                # Most agents implement no other way to end the turn of a cancelled prompt.
                params = msgspec.json.encode({"sessionId": call.session})
                self.enveloped.neighbour.notify("session/cancel", params)

    # -- Receiver: messages from the peer ----------------------------------------------------------

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        if method in NOTIFICATIONS:  # acp.el sends `session/cancel` with an id
            self.on_notification(method, params)
            call.source.respond(call, b"{}", None)
        elif method in CONTROL_METHODS:
            try:
                control_request(self, call, method, params)
            except RequestError as exc:
                detail = f"{method}: {exc.data or exc.message}"
                self.report("request refused", detail, message_names(method, params))
                call.source.respond(call, None, exception_to_error(exc))
        else:
            route = self.plain.received_requests
            route.get(method, route.others)(call, method, params)

    def on_notifications(self, notifications: NotificationBatch) -> None:
        if notifications.method in REQUESTS:
            for each in notifications.params:
                self.on_notification(notifications.method, each)
            return
        if notifications.method in CONTROL_METHODS:
            control_notifications(self, notifications)
            return
        route = self.plain.received_batches
        route.get(notifications.method, route.others)(notifications)

    def on_notification(self, method: str, params: Payload | None) -> None:
        if method in REQUESTS:
            self.report("notification dropped", f"{method} is a request", {"method": method})
            return
        if method in CONTROL_METHODS:
            try:
                control_notification(self, method, params)
            except RequestError as exc:
                detail = f"{method}: {exc.data or exc.message}"
                self.report("notification dropped", detail, message_names(method, params))
            return
        route = self.plain.received_notifications
        route.get(method, route.others)(method, params)

    def on_response(self, call: InFlightRequest, result: RawMember, error: RawMember) -> None:
        call.refused = result is None
        route = call.target.received_responses  # type: ignore[union-attr]
        route.get(call.method, route.others)(call, result, error)

    def on_malformed(self, frame: Malformed, call: InFlightRequest | None) -> None:
        if call is not None:
            message = f"{self.name} sent a malformed response to this request"
            data = {"component": self.name, "reason": frame.reason}
            self.on_response(call, None, encode_error(INTERNAL_ERROR, message, data))
        elif frame.response and frame.id is not UNSET and (late := self.late_answer(frame.id)):
            self.report("late answer dropped", *late)
            return
        excerpt = frame.excerpt
        if self.role in CLIENT_ROLES and details_are_withheld():
            excerpt = ""  # the content of a remote client's message must not be logged
        detail = f"{frame.reason}: {excerpt}" if excerpt else frame.reason
        names: dict[str, object] = {} if call is None else {"method": call.method}
        self.report("malformed message", detail, names)
