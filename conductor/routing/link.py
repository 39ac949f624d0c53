"""A connection as a component of the chain: its one or two ports, its dialect, its envelope.

A proxy that is a process has one connection that carries two peers (design §4): plain messages are
traffic with its predecessor, `proxy/successor` is traffic with its successor. A client or an agent
has only the plain port; a conductor above us (proxy mode) has both, being our client and, in the
envelope, our successor. The link stays in its place when the process behind it is replaced.

Here is what comes from the peer, and when it comes and goes; `link_port` has what is sent to it,
`control` what is for the conductor itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, Protocol

import attrs
import msgspec

from conductor.acp import session_id_of
from conductor.errors import RequestError, details_are_withheld
from conductor.jsonrpc.codec import Malformed
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import INTERNAL_ERROR, Payload, encode_error, exception_to_error
from conductor.jsonrpc.notification_batch import SESSION_UPDATE, NotificationBatch
from conductor.routing.control import (
    CONTROL_METHODS,
    control_notification,
    control_notifications,
    control_request,
)
from conductor.routing.envelope import DIALECTS, INIT_METHODS, Dialect
from conductor.routing.failure_errors import FailureErrors
from conductor.routing.link_port import CLIENT_ROLES, PROMPT, SESSION_CANCEL, LinkPort
from conductor.routing.message_queue import MessageQueue
from conductor.routing.proxy_meta import (
    METHODS_WITH_PROXY_META,
    may_have_proxy_meta,
    without_proxy_meta,
)
from conductor.routing.session_log import LOGGED_METHODS, SessionLog

__all__ = ["InitializationHandler", "Link", "LinkObserver"]

_PROOFS_OF_HEALTH: Final = frozenset({"session/prompt", "initialize", *INIT_METHODS})
_NOT_RUNNING: Final = FailureErrors.plain(
    encode_error(INTERNAL_ERROR, "The component is not running")
)
Report = Callable[[str, str], None]
"""Called with an event and its details when a peer did something odd."""


class InitializationHandler(Protocol):
    """Whoever initialises the component behind a link."""

    def begin(self, call: InFlightRequest, params: Payload | None) -> None:
        """The predecessor asks for the component's initialization."""

    def forwarded(self, call: InFlightRequest) -> None:
        """The component asks for its successor's initialization."""

    def echoed(self, method: str) -> None:
        """The component sent a proxy init to its successor."""

    def sent_back(self, method: str) -> None:
        """The component sent an init to its predecessor."""

    def successor_answered(self, call: InFlightRequest) -> None:
        """The component gets the answer to a call that it forwarded to its successor."""


class LinkObserver(Protocol):
    """Wants to see what passes a component's plain port; costs nothing where there is none."""

    def on_request_to(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """The component gets a request."""

    def on_response_from(self, call: InFlightRequest) -> None:
        """The component answered."""

    def on_request_from(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """The component asks."""

    def on_response_to(self, call: InFlightRequest) -> None:
        """The component gets an answer."""

    def on_notification_from(self, method: str, params: Payload | None) -> None:
        """The component notifies."""


class PromptTurnObserver(Protocol):
    """Wants to see the turns of a component, and what cancels them; no updates in version 1.

    For a client's link, the component is the chain behind it.
    """

    wants_updates: bool
    """Version 2: whether updates are shown, for the states among them."""

    def on_prompt(self, call: InFlightRequest, params: Payload | None) -> None:
        """The component gets a prompt."""

    def on_cancel(self, params: Payload | None) -> None:
        """The component gets `session/cancel`."""

    def on_cancel_request(self, call: InFlightRequest) -> None:
        """The component gets `$/cancel_request`."""

    def on_response_from(self, call: InFlightRequest) -> None:
        """The component answered, or was answered for."""

    def on_notifications(self, notifications: NotificationBatch) -> None:
        """The component sent several notifications of one method."""

    def on_notification(self, method: str, params: Payload | None) -> None:
        """The component sent a notification."""


@attrs.define(eq=False, repr=False)
class Link:
    """The connection of one component, client or parent conductor.

    `role` decides what it may say: a "client" and an "agent" have no successor; a "proxy" and a
    "parent" (the conductor above us, in proxy mode) have.
    """

    name: str
    role: Literal["client", "proxy", "agent", "parent"]
    report: Report
    dialect: Dialect = DIALECTS[0]
    initializer: InitializationHandler | None = None
    connection: Connection | None = None
    disconnect_error: FailureErrors = _NOT_RUNNING
    eof_error: bytes | None = None
    """The error for requests to a peer that has ended its stream."""
    initialized: bool = False
    """Whether a client, or a parent, has its answer to `initialize`."""
    session_log: SessionLog = attrs.field(factory=SessionLog)
    queue: MessageQueue | None = None
    """What waits while the component is started again; `None` while it runs."""
    recorded_results: dict[str, bytes] = attrs.field(factory=dict)
    """Results for requests to the successor that are answered from the record (`replay`)."""
    observer: LinkObserver | None = None
    turn_observer: PromptTurnObserver | None = None
    """Of the component."""
    client_turns: PromptTurnObserver | None = None
    """Of a client: its turns with the whole chain."""
    on_success: Callable[[], None] | None = None
    """Called when the component has initialized, or answered a prompt, without an error."""
    interceptor: Callable[[InFlightRequest, str, Payload | None], bool] | None = None
    """Asked first about a request of `LOGGED_METHODS`; true if it has taken care of it."""
    access_check: Callable[[str, Payload | None], None] | None = None
    """Called with each request and notification of the peer before anything else sees it; raises
    `RequestError` to refuse it."""
    on_plugin_info: Callable[[Payload | None], None] | None = None
    """Called with what an isolated plugin tells of its class."""
    lost_sessions: set[str] = attrs.field(factory=set)
    """Sessions that a restarted agent does not know any more, until somebody has been told so."""
    suppressed_session: str | None = None
    """A session whose updates are dropped: the client has seen them before."""
    strips_proxy_meta: bool = False
    """Whether marks of proxies are removed from what the peer sends: of an agent behind proxies."""
    plain: LinkPort = attrs.field(init=False)
    enveloped: LinkPort | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.plain = LinkPort(self, enveloped=False)
        has_successor = self.role in ("proxy", "parent")
        self.enveloped = LinkPort(self, enveloped=True) if has_successor else None

    def backlog(self) -> int:
        """Bytes that wait for the component."""
        unwritten = 0 if self.connection is None else self.connection.write_buffer.size
        return unwritten if self.queue is None else unwritten + self.queue.size

    def start_queueing(self) -> None:
        """From now on, keep what is sent to the component until `release_queue`."""
        self.queue = MessageQueue()

    def release_queue(self) -> None:
        """The component runs again, or never will: what waited goes to it, in order."""
        queue, self.queue = self.queue, None
        if queue is not None:
            queue.release()

    def release_queue_past(self) -> None:
        """The component is left out of the chain: what waited for it goes past it, in order."""
        queue, self.queue = self.queue, None
        if queue is not None:
            queue.release_past(self)

    def fail_request(self, call: InFlightRequest, reason: str) -> None:
        """Answer a call in the component's place with an error, and let the component know."""
        self.plain.cancel(call)
        self.answer_in_place(
            call, None, encode_error(INTERNAL_ERROR, reason, {"component": self.name})
        )

    def answer_in_place(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        """Answer a call in the component's place; a late answer of its own is dropped."""
        connection = self.connection
        if connection is None or connection.sent.get(call.target_id) is not call:
            return
        del connection.sent[call.target_id]
        self.on_response(call, result, error)

    def on_eof(self, error: bytes) -> None:
        """The peer says nothing more, but may read: whoever asked it, or asks it now, gets the
        error `error`."""
        self.eof_error = error
        if self.connection is None:
            return
        owed = list(self.connection.sent.values())
        self.connection.sent.clear()
        for call in owed:
            self.on_response(call, None, error)

    def disconnect(self, error: FailureErrors) -> None:
        """The peer is gone: answer what it owed with the errors of `error`, withdraw its
        requests."""
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
            if call.session is not None and self.enveloped is not None:
                # Most agents know no other way to end a turn whose prompt nobody waits for.
                params = msgspec.json.encode({"sessionId": call.session})
                self.enveloped.neighbour.notify("session/cancel", params)

    # -- Receiver: what the peer sent ----------------------------------------------------------

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
                self.report("request refused", f"{method}: {exc.data or exc.message}")
                call.source.respond(call, None, exception_to_error(exc))
        else:
            if self.role in CLIENT_ROLES and method in LOGGED_METHODS:
                try:
                    self.session_log.log_request(call, method, params)
                except RequestError as exc:
                    call.source.respond(call, None, exception_to_error(exc))
                    return
            if self.observer is not None:
                self.observer.on_request_from(call, method, params)
            if self.client_turns is not None and method == PROMPT:
                self.client_turns.on_prompt(call, params)
            self.plain.neighbour.request(call, method, params)

    def on_notifications(self, notifications: NotificationBatch) -> None:
        if (
            self.suppressed_session is not None
            or self.observer is not None
            or self.access_check is not None
            or (self.strips_proxy_meta and notifications.has(may_have_proxy_meta))
        ):
            for each in notifications.params:
                self.on_notification(notifications.method, each)
            return
        if self.turn_observer is not None and self.turn_observer.wants_updates:
            self.turn_observer.on_notifications(notifications)
        if self.client_turns is not None and notifications.method == SESSION_CANCEL:
            for each in notifications.params:
                self.client_turns.on_cancel(each)
        if notifications.method in CONTROL_METHODS:
            control_notifications(self, notifications)
        else:
            self.plain.neighbour.notify_batch(notifications)

    def on_notification(self, method: str, params: Payload | None) -> None:
        if self.strips_proxy_meta and method == SESSION_UPDATE and params is not None:
            params = without_proxy_meta(params)
        if self.access_check is not None:
            try:
                self.access_check(method, params)
            except RequestError as exc:
                self.report("notification refused", f"{method}: {exc.message}")
                return
        if self.observer is not None:
            self.observer.on_notification_from(method, params)
        if self.turn_observer is not None and self.turn_observer.wants_updates:
            self.turn_observer.on_notification(method, params)
        if self.client_turns is not None and method == SESSION_CANCEL:
            self.client_turns.on_cancel(params)
        if method in CONTROL_METHODS:
            try:
                control_notification(self, method, params)
            except RequestError as exc:
                self.report("notification dropped", f"{method}: {exc.data or exc.message}")
        elif self.suppressed_session is None or self.suppressed_session != session_id_of(params):
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
        if self.observer is not None:
            self.observer.on_response_from(call)
        if self.turn_observer is not None:
            self.turn_observer.on_response_from(call)
        call.target.neighbour.respond(call, result, error)  # type: ignore[union-attr]

    def on_malformed(self, frame: Malformed, call: InFlightRequest | None) -> None:
        if call is not None:
            message = f"{self.name} sent a malformed answer to this request"
            data = {"component": self.name, "reason": frame.reason}
            self.on_response(call, None, encode_error(INTERNAL_ERROR, message, data))
        excerpt = frame.excerpt
        if self.role in CLIENT_ROLES and details_are_withheld():
            excerpt = ""  # what a remote client says is not for the log
        self.report("malformed message", f"{frame.reason}: {excerpt}" if excerpt else frame.reason)
