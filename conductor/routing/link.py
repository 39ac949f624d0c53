"""A connection as a component of the chain: its one or two ports, its dialect, its envelope.

A proxy that is a process has one connection that carries two peers: plain messages are traffic with
its predecessor, `proxy/successor` is traffic with its successor. A client or an agent has only the
plain port; a parent conductor (proxy mode) has both: it is the client and, in the envelope, the
successor. The link keeps its place in the chain when the process behind it is replaced.

`Link` receives what the peer sends: it is the `Receiver` of its connection. `link_port` sends to
the peer, `link_state` is what both share, `control` handles messages for the conductor itself.
"""

from __future__ import annotations

import re
from time import monotonic
from typing import Final

import msgspec
from msgspec import UNSET

from conductor.acp import (
    LOGIN_METHODS,
    MCP_METHODS,
    NOTIFICATIONS,
    REQUESTS,
    SESSION_CANCEL,
    SESSION_SETTING_METHODS,
    SESSION_SETUP_METHODS,
    message_names,
    session_id_of,
)
from conductor.error_codes import AUTHENTICATION_REQUIRED
from conductor.errors import RequestError, details_are_withheld
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.malformed import Malformed
from conductor.jsonrpc.messages import (
    INTERNAL_ERROR,
    Payload,
    encode_error,
    error_to_exception,
    exception_to_error,
)
from conductor.jsonrpc.notification_batch import SESSION_UPDATE, NotificationBatch
from conductor.routing.control import (
    CONTROL_METHODS,
    control_notification,
    control_notifications,
    control_request,
)
from conductor.routing.envelope import INIT_METHODS
from conductor.routing.failure_errors import FailureErrors, answer_of_gone
from conductor.routing.link_port import LinkPort
from conductor.routing.link_state import CLIENT_ROLES, LinkState, Report, Role
from conductor.routing.message_queue import MessageQueue, QueuedMessage
from conductor.routing.proxy_meta import (
    METHODS_WITH_PROXY_META,
    may_have_proxy_meta,
    without_proxy_meta,
)
from conductor.routing.session_log import LOGGED_METHODS

__all__ = ["Link"]

_HISTORY: Final = re.compile(rb'"(?:user|agent)_(?:message|thought)|"tool_call')
"""In an update that repeats a part of a conversation."""
_PROOFS_OF_HEALTH: Final = frozenset({"session/prompt", "initialize", *INIT_METHODS})


class Link(LinkState):
    """The connection of one component, client or parent conductor, with its ports."""

    def __init__(self, name: str, role: Role, report: Report) -> None:
        super().__init__(name, role, report)
        self.plain: LinkPort = LinkPort(self, enveloped=False)
        has_successor = role in ("proxy", "parent")
        self.enveloped: LinkPort | None = LinkPort(self, enveloped=True) if has_successor else None

    def start_queueing(self) -> None:
        """Queue messages for the component until `release_queue` or `release_queue_past`."""
        self.queue = MessageQueue()

    def release_queue(self) -> None:
        """Send the queued messages to the component, in order.

        If it is no longer connected, each request is answered with `disconnect_error`.
        """
        queue, self.queue = self.queue, None
        if queue is not None:
            queue.release(_send_to_own_port)

    def release_queue_past(self) -> None:
        """Send the queued messages to the neighbour beyond the component, which is bypassed."""
        queue, self.queue = self.queue, None
        if queue is not None:
            queue.release(self._send_past)

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
        result: Payload | None,
        error: Payload | None,
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
        self.eof_error = error
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
        self.disconnect_error = error
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
            if self.role in CLIENT_ROLES and method in LOGGED_METHODS:
                try:
                    self.session_log.log_request(call, method, params)
                except RequestError as exc:
                    call.source.respond(call, None, exception_to_error(exc))
                    return
            for each in self.incoming_observers:
                each.on_request(call, method, params)
            if self.choose_chain is None or not self.choose_chain(call, method, params):
                self.plain.neighbour.request(call, method, params)

    def on_notifications(self, notifications: NotificationBatch) -> None:
        if (
            self.suppressed_session is not None
            or (self.strips_proxy_meta and notifications.has(may_have_proxy_meta))
            or notifications.method in REQUESTS
        ):
            for each in notifications.params:
                self.on_notification(notifications.method, each)
            return
        if notifications.method in CONTROL_METHODS:
            control_notifications(self, notifications)
            return
        if notifications.method == SESSION_CANCEL:
            for observer in self.incoming_observers:
                for each in notifications.params:
                    observer.on_session_cancel(each)
        for observer in self.outgoing_observers:
            if observer.wants_notifications:
                observer.on_notifications(notifications)
        self.plain.neighbour.notify_batch(notifications)

    def on_notification(self, method: str, params: Payload | None) -> None:
        if self.strips_proxy_meta and method == SESSION_UPDATE and params is not None:
            params = without_proxy_meta(params)
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
        if method == SESSION_CANCEL:
            for each in self.incoming_observers:
                each.on_session_cancel(params)
        for each in self.outgoing_observers:
            if each.wants_notifications:
                each.on_notification(method, params)
        if self.suppressed_session is None or self.suppressed_session != session_id_of(params):
            self.plain.neighbour.notify(method, params)
        elif params is not None and _HISTORY.search(params) is not None:
            self.history_seen = True

    def on_response(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        if self.strips_proxy_meta and result is not None and call.method in METHODS_WITH_PROXY_META:
            result = without_proxy_meta(result)
        if call.method in LOGGED_METHODS:
            self.session_log.log_response(call, result)
            if self.login_is_stale:
                error = self._of_stale_login(call, result, error)
        elif self.settings_log is not None and call.method in SESSION_SETTING_METHODS:
            self.settings_log.on_result(call, result)
        if self.on_success is not None and result is not None and call.method in _PROOFS_OF_HEALTH:
            self.on_success()
        call.refused = result is None
        for each in self.outgoing_observers:
            each.on_response(call)
        call.target.neighbour.respond(call, result, error)  # type: ignore[union-attr]

    def _of_stale_login(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> Payload | None:
        """The error of a session set-up, with the reason why the agent requires a login again."""
        if result is not None and call.method in LOGIN_METHODS | SESSION_SETUP_METHODS:
            self.login_is_stale = False
        if error is None or call.method not in SESSION_SETUP_METHODS:
            return error
        refusal = error_to_exception(error)
        if refusal.code != AUTHENTICATION_REQUIRED:
            return error
        reason = f"{self.name} was restarted and has lost its login: log in again"
        return encode_error(refusal.code, f"{refusal.message}: {reason}", refusal.data)

    def on_malformed(self, frame: Malformed, call: InFlightRequest | None) -> None:
        if call is not None:
            message = f"{self.name} sent a malformed response to this request"
            data = {"component": self.name, "reason": frame.reason}
            self.on_response(call, None, encode_error(INTERNAL_ERROR, message, data))
        elif frame.response and self.late_answers is not None and frame.id is not UNSET:
            late = self.late_answers.take(frame.id, monotonic())
            if late is not None:
                self.report("late answer dropped", *late)
                return
        excerpt = frame.excerpt
        if self.role in CLIENT_ROLES and details_are_withheld():
            excerpt = ""  # the content of a remote client's message must not be logged
        detail = f"{frame.reason}: {excerpt}" if excerpt else frame.reason
        names: dict[str, object] = {} if call is None else {"method": call.method}
        self.report("malformed message", detail, names)


def _send_to_own_port(message: QueuedMessage) -> None:
    assert message.port is not None
    message.send_to(message.port)
