"""A connection as a component of the chain: its one or two ports, its dialect, its envelope.

A proxy that is a process has one connection that carries two peers: plain messages are traffic with
its predecessor, `proxy/successor` is traffic with its successor. A client or an agent has only the
plain port; a parent conductor (proxy mode) has both: it is the client and, in the envelope, the
successor. The link keeps its place in the chain when the process behind it is replaced.

`LinkPort` sends to the peer what has passed the stages of the port (`stage`). `Link` receives what
the peer sends: it is the `Receiver` of its connection. Messages of `CONTROL_METHODS` are for the
conductor itself: an envelope is removed and its message goes to the successor; a `proxy/initialize`
from the parent conductor (this chain is a proxy in another one) tells which dialect the parent
speaks; a cancellation is sent on with the id of the next hop. Refused with -32600: envelopes and
proxy initializations from components that may not send them, and envelopes inside of envelopes,
with which a component could send in the name of another one.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final, Literal, Protocol

import msgspec
from msgspec import UNSET

from conductor.acp import (
    MCP_METHODS,
    NOTIFICATIONS,
    PROMPT,
    REQUESTS,
    message_names,
    session_id_of,
)
from conductor.bounded_dict import BoundedDict
from conductor.errors import RequestError, details_are_withheld
from conductor.jsonrpc.codec import Malformed
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import decode_with_surrogates
from conductor.jsonrpc.messages import (
    CANCEL,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    Id,
    Payload,
    RawMember,
    encode_error,
    encode_id,
    exception_to_error,
    notification_pieces,
    request_pieces,
)
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.envelope import (
    ENVELOPE_METHODS,
    INIT_METHODS,
    TRIED,
    Dialect,
    is_marked,
    notification_affixes,
    unmarked,
    unwrap,
    wrap_notification,
    wrap_request,
)
from conductor.routing.failure_errors import Disconnected, FailureErrors, answer_of_gone
from conductor.routing.message_queue import Hold, MessageQueue, QueuedMessage
from conductor.routing.session_log import LoggedSetups, SessionLog, SuccessorSetups
from conductor.routing.stage import StagedPort

__all__ = ["CLIENT_ROLES", "CONTROL_METHODS", "Link", "LinkPort", "Report", "Role"]

CLIENT_ROLES: Final = frozenset({"client", "parent"})
"""Roles of peers that send requests to the chain."""
Role = Literal["client", "proxy", "agent", "parent"]
Report = Callable[[str, str, dict[str, object]], None]
"""Called with a log event, its details, and what names the message (`message_names`) when a peer
violates the protocol."""
_MAX_LATE: Final = 200
"""Late answers that are expected: a component may never send them."""
CONTROL_METHODS: Final = frozenset({*ENVELOPE_METHODS, *INIT_METHODS, CANCEL, "initialize"})
_NOT_BATCHED: Final = CONTROL_METHODS | REQUESTS
_NOT_RUNNING: Final = FailureErrors.plain(
    encode_error(INTERNAL_ERROR, "The component is not running")
)


class LinkPort(StagedPort):
    """One port of a link.

    A request gets an id of this connection and is recorded in `connection.sent`, so that its
    response finds its originator. One that is `is_enveloped` sends in the successor envelope.
    """

    __slots__ = ("is_enveloped", "link")

    def __init__(self, link: Link, *, is_enveloped: bool) -> None:
        super().__init__()
        self.link: Link = link
        self.is_enveloped: bool = is_enveloped

    @property
    def component_name(self) -> str:
        # An outer conductor brings the messages of both neighbours.
        return "agent" if self.is_enveloped and self.link.role == "parent" else self.link.name

    def sender_of(self, method: str) -> str:
        return self.component_name

    def backlog(self) -> int:
        return self.link.backlog()

    def deliver_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        link = self.link
        connection = link.connection
        assert connection is not None  # else the stage `disconnected` has answered
        call.target = self
        id = connection.open(call)
        if self.is_enveloped:
            connection.write(wrap_request(link.dialect, id, method, params))
        else:
            connection.write(request_pieces(id, method, params))
        if call.cancelled:
            self.cancel(call)

    def deliver_notification(self, method: str, params: Payload | None) -> None:
        connection = self.link.connection
        if connection is None:
            return
        if self.is_enveloped:
            connection.write(wrap_notification(self.link.dialect, method, params))
        else:
            connection.write(notification_pieces(method, params))

    def deliver_batch(self, notifications: NotificationBatch) -> None:
        connection = self.link.connection
        if connection is None:
            return
        head, tail = notification_affixes(
            self.link.dialect if self.is_enveloped else None, notifications.method
        )
        connection.write((notifications.as_lines(head, tail),))

    def deliver_response(self, call: InFlightRequest, result: RawMember, error: RawMember) -> None:
        call.source.respond(call, result, error)

    def cancel(self, call: InFlightRequest) -> None:
        connection = self.link.connection
        if connection is not None and connection.sent.get(call.target_id) is call:
            super().cancel(call)

    def deliver_cancel(self, call: InFlightRequest) -> None:
        """Re-issue the cancellation with this hop's id.

        Only a parent conductor gets it in an envelope; other components expect it plain.
        """
        connection = self.link.connection
        assert connection is not None
        params = b'{"requestId":%b}' % encode_id(call.target_id)
        if self.is_enveloped and self.link.role == "parent":
            connection.write(wrap_notification(self.link.dialect, CANCEL, params))
        else:
            connection.write(notification_pieces(CANCEL, params))


class Initializer(Protocol):
    """Initializes the component behind a link (`supervision.initialization`)."""

    def on_echoed(self) -> None:
        """The component sent a proxy initialization to its successor."""

    def on_sent_back(self, method: str) -> None:
        """The component sent an initialization (`method`) to its predecessor."""


class Link:
    """The connection of one component, client or parent conductor, with its ports.

    `role` decides which messages the peer may send: a "proxy" and a "parent" (the parent conductor,
    in proxy mode) have a successor; a "client" and an "agent" have none.
    """

    def __init__(self, name: str, role: Role, report: Report) -> None:
        self.name = name
        self.role = role
        self.report = report
        self.dialect: Dialect = TRIED[0]
        self.initializer: Initializer | None = None
        """That of the component's present process; `None` if others initialize it."""
        self.connection: Connection | None = None
        self._late: BoundedDict[Id, tuple[InFlightRequest, float]] = BoundedDict(_MAX_LATE)
        """Requests that were answered in the peer's place, and when, by their ids here."""
        self.initialized = False
        """Whether `initialize` of a client or parent has been answered."""
        self.session_log: SessionLog = SessionLog()
        self.queue: MessageQueue | None = None
        """Messages that wait while the component restarts or the client is away, else `None`."""
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
        self.connection = connection
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

    def fail_request(self, call: InFlightRequest, reason: str) -> None:
        """Answer a request in the component's place with an error, and cancel it there."""
        self.plain.cancel(call)
        error = encode_error(INTERNAL_ERROR, reason, {"component": self.name})
        self.answer_in_place(call, None, error)

    def answer_in_place(self, call: InFlightRequest, result: RawMember, error: RawMember) -> None:
        """Answer a request in the component's place; its own late response will be dropped."""
        connection = self.connection
        if connection is None or connection.sent.get(call.target_id) is not call:
            return
        del connection.sent[call.target_id]
        self._late[call.target_id] = call, monotonic()
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
        connection, self.connection = self.connection, None
        self._late.clear()
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

    def backlog(self) -> int:
        """Bytes that wait to be read by the component: write buffer and queue."""
        unwritten = 0 if self.connection is None else self.connection.write_buffer.size
        return unwritten if self.queue is None else unwritten + self.queue.size

    # -- Receiver: messages from the peer ----------------------------------------------------------

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        if method in NOTIFICATIONS:  # acp.el sends `session/cancel` with an id
            self.on_notification(method, params)
            call.source.respond(call, b"{}", None)
        elif method in CONTROL_METHODS:
            try:
                self._control_request(call, method, params)
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
            self._control_notifications(notifications)
            return
        route = self.plain.received_batches
        route.get(notifications.method, route.others)(notifications)

    def on_notification(self, method: str, params: Payload | None) -> None:
        if method in REQUESTS:
            self.report("notification dropped", f"{method} is a request", {"method": method})
            return
        if method in CONTROL_METHODS:
            try:
                self._control_notification(method, params)
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
        elif frame.response and frame.id is not UNSET and (late := self._late_answer(frame.id)):
            self.report("late answer dropped", *late)
            return
        excerpt = frame.excerpt
        if self.role in CLIENT_ROLES and details_are_withheld():
            excerpt = ""  # the content of a remote client's message must not be logged
        detail = f"{frame.reason}: {excerpt}" if excerpt else frame.reason
        names: dict[str, object] = {} if call is None else {"method": call.method}
        self.report("malformed message", detail, names)

    def _late_answer(self, id: Id) -> tuple[str, dict[str, object]] | None:
        """Description of the late answer with this id, and method and session of its request;
        `None` if it answers no request that was answered in place."""
        if id not in self._late:
            return None
        call, time = self._late.pop(id)
        detail = f"the request was answered in its place {monotonic() - time:.1f} s ago"
        session = {} if call.session is None else {"session": call.session}
        return detail, {"method": call.method, **session}

    # -- messages for the conductor itself ---------------------------------------------------------

    def _control_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """Handle a request of `CONTROL_METHODS`. Raises `RequestError` to refuse it."""
        if method in ENVELOPE_METHODS:
            if (port := self.enveloped) is None:
                raise self._no_successor(method)
            inner = unwrap(params)
            call.method = inner.method
            if inner.method in NOTIFICATIONS:
                self._control_notification(method, params)
                call.source.respond(call, b"{}", None)
                return
            if inner.method in INIT_METHODS:
                if self.initializer is not None:
                    self.initializer.on_echoed()
                raise _invalid_request("initialize/proxy requests are only sent by the conductor")
            if inner.method in ENVELOPE_METHODS:
                raise _invalid_request(f"{inner.method} cannot be sent inside of {method}")
            if inner.method == "session/prompt":
                call.session = session_id_of(inner.params)
            inner_params = inner.params
            if inner.method == "initialize" and inner_params is not None:
                inner_params = unmarked(inner_params)
            route = port.received_requests
            route.get(inner.method, route.others)(call, inner.method, inner_params)
        elif method in INIT_METHODS:
            if self.role != "parent":
                if self.initializer is not None:
                    self.initializer.on_sent_back(method)
                raise _invalid_request("initialize/proxy requests are only sent by the conductor")
            if self.initialized:
                raise _invalid_request("a connection is initialized only once")
            self.dialect = INIT_METHODS[method]
            call.method = "initialize"
            route = self.plain.received_requests
            route.get("initialize", route.others)(call, "initialize", params)
        elif method == "initialize" and self.initialized:
            raise _invalid_request("a connection is initialized only once")
        elif method == "initialize" and self.role == "parent" and is_marked(params):
            assert params is not None
            self.dialect = "_meta"
            route = self.plain.received_requests
            route.get(method, route.others)(call, method, unmarked(params))
        elif method == "initialize" and self.role == "parent":
            raise _invalid_request("this conductor runs as a proxy: expected `proxy/initialize`")
        elif method == "initialize" and self.initializer is not None:
            self.initializer.on_sent_back(method)
            raise _invalid_request(
                "`initialize` is not for the client: proxies send it in `proxy/successor`"
            )
        else:
            route = self.plain.received_requests
            route.get(method, route.others)(call, method, params)

    def _control_notifications(self, envelopes: NotificationBatch) -> None:
        """Remove the envelopes of several notifications; consecutive ones of one method stay a
        batch."""
        method = envelopes.method
        if method not in ENVELOPE_METHODS or self.enveloped is None:
            for each in envelopes.params:
                self.on_notification(method, each)
            return
        batch: list[Payload] = []
        batch_method = ""
        for envelope in envelopes.params:
            try:
                inner = unwrap(envelope)
            except RequestError:
                inner = None
            if inner is None or inner.params is None or inner.method in _NOT_BATCHED:
                self._flush_notifications(batch_method, batch)
                batch = []
                self.on_notification(method, envelope)
                continue
            if inner.method != batch_method:
                self._flush_notifications(batch_method, batch)
                batch, batch_method = [], inner.method
            batch.append(inner.params)
        self._flush_notifications(batch_method, batch)

    def _control_notification(self, method: str, params: Payload | None) -> None:
        """Handle a notification of `CONTROL_METHODS`. Raises `RequestError` if it is invalid."""
        if method in ENVELOPE_METHODS:
            if (port := self.enveloped) is None:
                raise self._no_successor(method)
            inner = unwrap(params)
            if inner.method == CANCEL:
                self._cancel(inner.params)
            elif inner.method in INIT_METHODS or inner.method in ENVELOPE_METHODS:
                raise _invalid_request(f"{inner.method} cannot be sent inside of {method}")
            elif inner.method in REQUESTS:
                raise _invalid_request(f"{inner.method} is a request")
            else:
                route = port.received_notifications
                route.get(inner.method, route.others)(inner.method, inner.params)
        elif method == CANCEL:
            self._cancel(params)
        elif method in INIT_METHODS:
            raise _invalid_request("an initialization is a request")
        else:
            route = self.plain.received_notifications
            route.get(method, route.others)(method, params)

    def _flush_notifications(self, method: str, batch: list[Payload]) -> None:
        if batch:
            assert self.enveloped is not None
            route = self.enveloped.received_batches
            route.get(method, route.others)(NotificationBatch(method, batch))

    def _no_successor(self, method: str) -> RequestError:
        who = "a client" if self.role == "client" else "an agent"
        return _invalid_request(f"{method} is for proxies: {who} has no successor")

    def _cancel(self, params: Payload | None) -> None:
        """Cancel the request that the params name by its id on this connection.

        The cancellation may come in an envelope or outside of one. `InFlightRequest.cancel` gives
        it to the request's target. An unknown id is not an error: the response may have been sent
        before the cancellation was received.
        """
        if self.connection is None or params is None:
            return
        try:
            id = decode_with_surrogates(params, _decode_cancel).requestId
        except ValueError:
            self.report("notification dropped", f"{CANCEL}: no valid requestId", {"method": CANCEL})
            return
        call = self.connection.received.get(id)
        if call is not None:
            route = self.plain.received_cancels
            route.get(call.method, route.others)(call)


class _Cancel(msgspec.Struct):
    requestId: int | str | None


_decode_cancel: Final = msgspec.json.Decoder(_Cancel).decode


def _invalid_request(problem: str) -> RequestError:
    return RequestError(INVALID_REQUEST, "Invalid request", problem)
