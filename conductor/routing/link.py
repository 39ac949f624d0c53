"""A connection as a component of the chain: its one or two ports, its dialect, its envelope.

A proxy that is a process has one connection that carries two peers: plain messages are traffic with
its predecessor, `proxy/successor` is traffic with its successor. A client or an agent has only the
plain port; a parent conductor (proxy mode) has both: it is the client and, in the envelope, the
successor. The link keeps its place in the chain when the process behind it is replaced.

`Link` receives what the peer sends (it is the `Receiver` of its connection) and holds the state of
the connection; `LinkPort` sends to the peer; `control` handles messages for the conductor itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import attrs
import msgspec

from conductor.acp import (
    MCP_METHODS,
    SESSION_CANCEL,
    SESSION_SETUP_METHODS,
    message_names,
    session_id_of,
)
from conductor.errors import RequestError, details_are_withheld
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.malformed import Malformed
from conductor.jsonrpc.messages import (
    CANCEL,
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    Payload,
    encode_error,
    encode_id,
    exception_to_error,
    notification_pieces,
    request_pieces,
)
from conductor.jsonrpc.notification_batch import SESSION_UPDATE, NotificationBatch
from conductor.routing.control import (
    CONTROL_METHODS,
    control_notification,
    control_notifications,
    control_request,
)
from conductor.routing.envelope import (
    DIALECTS,
    INIT_METHODS,
    Dialect,
    notification_affixes,
    wrap_notification,
    wrap_request,
)
from conductor.routing.failure_errors import FailureErrors
from conductor.routing.message_queue import MessageQueue, QueuedMessage
from conductor.routing.observers import InitializationHandler, LinkObserver
from conductor.routing.port import Port
from conductor.routing.proxy_meta import (
    METHODS_WITH_PROXY_META,
    may_have_proxy_meta,
    without_proxy_meta,
)
from conductor.routing.session_log import LOGGED_METHODS, SessionLog

__all__ = ["CLIENT_ROLES", "Link", "LinkPort"]

CLIENT_ROLES: Final = frozenset({"client", "parent"})
"""Roles of peers that send requests to the chain."""
_PROOFS_OF_HEALTH: Final = frozenset({"session/prompt", "initialize", *INIT_METHODS})
_NOT_RUNNING: Final = FailureErrors.plain(
    encode_error(INTERNAL_ERROR, "The component is not running")
)
Report = Callable[[str, str, dict[str, object]], None]
"""Called with a log event, its details, and what names the message (`message_names`) when a peer
violates the protocol."""


@attrs.define(eq=False, repr=False)
class Link:
    """The connection of one component, client or parent conductor.

    `role` decides which messages the peer may send: a "proxy" and a "parent" (the parent conductor,
    in proxy mode) have a successor; a "client" and an "agent" have none.
    """

    name: str
    role: Literal["client", "proxy", "agent", "parent"]
    report: Report
    dialect: Dialect = DIALECTS[0]
    initializer: InitializationHandler | None = None
    connection: Connection | None = None
    disconnect_error: FailureErrors = _NOT_RUNNING
    eof_error: bytes | None = None
    """Wire error for requests to a peer that closed its output; `None` while it is open."""
    initialized: bool = False
    """Whether `initialize` of a client or parent has been answered."""
    session_log: SessionLog = attrs.field(factory=SessionLog)
    queue: MessageQueue | None = None
    """Messages that wait while the component restarts; `None` while it runs."""
    recorded_results: dict[str, bytes] = attrs.field(factory=dict)
    """Raw results, by method, for requests to the successor during a replay."""
    observers_to: tuple[LinkObserver, ...] = ()
    """See the requests that the peer is sent."""
    observers_from: tuple[LinkObserver, ...] = ()
    """See the requests that the peer sends."""
    on_success: Callable[[], None] | None = None
    """Called when the component answers an initialization or a prompt with a result."""
    interceptor: Callable[[InFlightRequest, str, Payload | None], bool] | None = None
    """Called first with each request of `LOGGED_METHODS`; returns whether it has handled it."""
    access_check: Callable[[str, Payload | None], None] | None = None
    """Called with each request and notification of the peer before any other processing; raises
    `RequestError` to refuse it."""
    on_plugin_info: Callable[[Payload | None], None] | None = None
    """Called with the params of a `PLUGIN_INFO` notification."""
    lost_sessions: set[str] = attrs.field(factory=set)
    """Sessions that a restarted agent has lost; each is removed when its next request was
    refused."""
    suppressed_session: str | None = None
    """The session of which notifications are dropped, because the client has seen them before
    (replay)."""
    strips_proxy_meta: bool = False
    """Whether `_meta` members of proxies are removed from the peer's messages (`proxy_meta`); set
    for an agent behind proxies."""
    plain: LinkPort = attrs.field(init=False)
    enveloped: LinkPort | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.plain = LinkPort(self, enveloped=False)
        has_successor = self.role in ("proxy", "parent")
        self.enveloped = LinkPort(self, enveloped=True) if has_successor else None

    def backlog(self) -> int:
        """Bytes that wait to be read by the component: write buffer and queue."""
        unwritten = 0 if self.connection is None else self.connection.write_buffer.size
        return unwritten if self.queue is None else unwritten + self.queue.size

    def start_queueing(self) -> None:
        """Queue messages for the component until `release_queue` or `release_queue_past`."""
        self.queue = MessageQueue()

    def release_queue(self) -> None:
        """Send the queued messages to the component, in order.

        If it has no connection any more, each request is answered with `disconnect_error`.
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

    def fail_request(self, call: InFlightRequest, reason: str) -> None:
        """Answer a request in the component's place with an error, and cancel it there."""
        self.plain.cancel(call)
        self.answer_in_place(
            call, None, encode_error(INTERNAL_ERROR, reason, {"component": self.name})
        )

    def answer_in_place(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        """Answer a request in the component's place; its own late response will be dropped."""
        connection = self.connection
        if connection is None or connection.sent.get(call.target_id) is not call:
            return
        del connection.sent[call.target_id]
        self.on_response(call, result, error)

    def on_eof(self, error: bytes) -> None:
        """The peer closed its output but may still read: answer requests to it, open and future
        ones, with the wire error `error`."""
        self.eof_error = error
        if self.connection is None:
            return
        owed = list(self.connection.sent.values())
        self.connection.sent.clear()
        for call in owed:
            self.on_response(call, None, error)

    def disconnect(self, error: FailureErrors) -> None:
        """The peer is gone: answer the requests to it with the errors of `error`, and cancel its
        own requests on the next hops."""
        connection, self.connection = self.connection, None
        self.disconnect_error = error
        if connection is None:
            return
        connection.abort_writing()
        self.session_log.drop_unanswered()
        owed = list(connection.sent.values())
        connection.sent.clear()
        for call in owed:
            self.on_response(call, None, error.answer(call.method, delivered=True))
        unanswered = connection.unanswered()
        connection.received.clear()
        connection.duplicate_id_requests.clear()
        for call in unanswered:
            call.cancel()
            if call.session is not None and self.role == "proxy" and self.enveloped is not None:
                # Most agents implement no other way to end the turn of a cancelled prompt.
                params = msgspec.json.encode({"sessionId": call.session})
                self.enveloped.neighbour.notify("session/cancel", params)

    def break_cycles(self) -> None:
        """Break reference cycles and forget all sessions, after the end of the chain."""
        self.connection = self.queue = self.initializer = None
        self.session_log = SessionLog()
        self.observers_to = self.observers_from = ()
        self.on_success = self.interceptor = self.access_check = self.on_plugin_info = None
        for port in (self.plain, self.enveloped):
            if port is not None:
                port.disconnect()
        del self.report, self.plain, self.enveloped

    # -- Receiver: messages from the peer ----------------------------------------------------------

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        if self.access_check is not None:
            try:
                self.access_check(method, params)
            except RequestError as exc:
                call.source.respond(call, None, exception_to_error(exc))
                return
        if method in CONTROL_METHODS:
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
            for each in self.observers_from:
                each.on_request(call, method, params)
            self.plain.neighbour.request(call, method, params)

    def on_notifications(self, notifications: NotificationBatch) -> None:
        if (
            self.suppressed_session is not None
            or self.access_check is not None
            or (self.strips_proxy_meta and notifications.has(may_have_proxy_meta))
        ):
            for each in notifications.params:
                self.on_notification(notifications.method, each)
            return
        if notifications.method in CONTROL_METHODS:
            control_notifications(self, notifications)
            return
        if notifications.method == SESSION_CANCEL:
            for observer in self.observers_from:
                for each in notifications.params:
                    observer.on_session_cancel(each)
        for observer in self.observers_to:
            if observer.wants_notifications:
                observer.on_notifications(notifications)
        self.plain.neighbour.notify_batch(notifications)

    def on_notification(self, method: str, params: Payload | None) -> None:
        if self.strips_proxy_meta and method == SESSION_UPDATE and params is not None:
            params = without_proxy_meta(params)
        if self.access_check is not None:
            try:
                self.access_check(method, params)
            except RequestError as exc:
                detail = f"{method}: {exc.message}"
                self.report("notification refused", detail, message_names(method, params))
                return
        if method in CONTROL_METHODS:
            try:
                control_notification(self, method, params)
            except RequestError as exc:
                detail = f"{method}: {exc.data or exc.message}"
                self.report("notification dropped", detail, message_names(method, params))
            return
        if method == SESSION_CANCEL:
            for each in self.observers_from:
                each.on_session_cancel(params)
        for each in self.observers_to:
            if each.wants_notifications:
                each.on_notification(method, params)
        if self.suppressed_session is None or self.suppressed_session != session_id_of(params):
            self.plain.neighbour.notify(method, params)

    def on_response(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        if self.strips_proxy_meta and result is not None and call.method in METHODS_WITH_PROXY_META:
            result = without_proxy_meta(result)
        if call.method in LOGGED_METHODS:
            self.session_log.log_response(call, result)
        if self.on_success is not None and result is not None and call.method in _PROOFS_OF_HEALTH:
            self.on_success()
        for each in self.observers_to:
            each.on_response(call)
        call.target.neighbour.respond(call, result, error)  # type: ignore[union-attr]

    def on_malformed(self, frame: Malformed, call: InFlightRequest | None) -> None:
        if call is not None:
            message = f"{self.name} sent a malformed response to this request"
            data = {"component": self.name, "reason": frame.reason}
            self.on_response(call, None, encode_error(INTERNAL_ERROR, message, data))
        excerpt = frame.excerpt
        if self.role in CLIENT_ROLES and details_are_withheld():
            excerpt = ""  # the content of a remote client's message must not be logged
        detail = f"{frame.reason}: {excerpt}" if excerpt else frame.reason
        names: dict[str, object] = {} if call is None else {"method": call.method}
        self.report("malformed message", detail, names)


class LinkPort(Port):
    """One port of a link: sends requests, notifications and responses to the component.

    A request gets an id of this connection and is recorded in `connection.sent`, so that its
    response finds its originator. With `enveloped`, messages are sent in the successor envelope.
    While the component restarts, requests and notifications are queued.
    """

    __slots__ = ("enveloped", "link")

    def __init__(self, link: Link, *, enveloped: bool) -> None:
        super().__init__()
        self.link: Link = link
        self.enveloped: bool = enveloped

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        link = self.link
        connection = link.connection
        if link.queue is not None:
            link.queue.append(QueuedMessage.copy_of(call, method, params, self))
            return
        if connection is None or link.eof_error is not None:
            error = link.eof_error or link.disconnect_error.answer(method, delivered=False)
            self.neighbour.respond(call, None, error)
            return
        if link.lost_sessions and self._answer_lost_session(call, method, params):
            return
        if method in LOGGED_METHODS and not self.enveloped:
            if link.interceptor is not None and link.interceptor(call, method, params):
                return
            try:
                link.session_log.log_request(call, method, params)
            except RequestError as exc:
                self.neighbour.respond(call, None, exception_to_error(exc))
                return
            if method == "initialize" and link.initializer is not None:
                link.initializer.begin(call, params)
                return
        # A client that provides no MCP server is asked if the proxy that did was bypassed; such a
        # client may not know how to refuse, so the conductor does.
        if method in MCP_METHODS and link.role == "client" and not link.session_log.has_servers:
            error = encode_error(METHOD_NOT_FOUND, "No component provides this MCP server", method)
            self.neighbour.respond(call, None, error)
            return
        call.target = self
        if not self.enveloped:
            for each in link.observers_to:
                each.on_request(call, method, params)
        id = connection.open(call)
        if self.enveloped:
            connection.write(wrap_request(link.dialect, id, method, params))
        else:
            connection.write(request_pieces(id, method, params))
        if call.cancelled:
            self.cancel(call)

    def backlog(self) -> int:
        return self.link.backlog()

    def _answer_lost_session(
        self, call: InFlightRequest, method: str, params: Payload | None
    ) -> bool:
        """Refuse the first request for a session that the component lost in a restart."""
        session = session_id_of(params)
        if session not in self.link.lost_sessions:
            return False
        self.link.lost_sessions.discard(session)
        if method in SESSION_SETUP_METHODS or session in self.link.session_log.sessions:
            return False  # it is being set up, or a new session has the same id
        name = self.link.name
        message = f"{name} was restarted and has lost this session; start a new one, or load it"
        data = {"component": name, "sessionId": session}
        self.neighbour.respond(call, None, encode_error(INTERNAL_ERROR, message, data))
        return True

    def notify(self, method: str, params: Payload | None) -> None:
        link = self.link
        connection = link.connection
        if link.queue is not None:
            link.queue.append(QueuedMessage.copy_of(None, method, params, self))
            return
        if connection is None:
            return
        if method == SESSION_CANCEL:
            for each in link.observers_to:
                each.on_session_cancel(params)
        for each in link.observers_from:
            if each.wants_notifications:
                each.on_notification(method, params)
        if self.enveloped:
            connection.write(wrap_notification(link.dialect, method, params))
        else:
            connection.write(notification_pieces(method, params))

    def notify_batch(self, notifications: NotificationBatch) -> None:
        link = self.link
        connection = link.connection
        if connection is None or link.queue is not None or notifications.method == SESSION_CANCEL:
            super().notify_batch(notifications)
            return
        for each in link.observers_from:
            if each.wants_notifications:
                each.on_notifications(notifications)
        head, tail = notification_affixes(
            link.dialect if self.enveloped else None, notifications.method
        )
        connection.write((notifications.as_lines(head, tail),))

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        if call.method in LOGGED_METHODS:
            if self.link.role in CLIENT_ROLES:
                self.link.session_log.log_response(call, result)
            else:
                self.link.session_log.log_successor_response(call, result)
            if call.method == "initialize" and self.link.initializer is not None:
                self.link.initializer.on_successor_response(call)
        for each in self.link.observers_from:
            each.on_response(call)
        call.source.respond(call, result, error)

    def cancel(self, call: InFlightRequest) -> None:
        """Re-issue the cancellation with this hop's id.

        Only a parent conductor gets it in an envelope; other components expect it plain.
        """
        connection = self.link.connection
        if connection is None or connection.sent.get(call.target_id) is not call:
            return
        if self.on_cancel is not None:
            self.on_cancel(call)
        for each in self.link.observers_to:
            each.on_cancel_request(call)
        params = b'{"requestId":%b}' % encode_id(call.target_id)
        if self.enveloped and self.link.role == "parent":
            connection.write(wrap_notification(self.link.dialect, CANCEL, params))
        else:
            connection.write(notification_pieces(CANCEL, params))


def _send_to_own_port(message: QueuedMessage) -> None:
    assert message.port is not None
    message.send_to(message.port)
