"""State of a component's connection, shared by its link and the ports of the link.

`Link` handles what the peer sends, `LinkPort` sends to the peer; both read and change this state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import attrs

from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import INTERNAL_ERROR, Payload, encode_error
from conductor.routing.envelope import DIALECTS, Dialect
from conductor.routing.failure_errors import FailureErrors
from conductor.routing.message_queue import MessageQueue
from conductor.routing.observers import InitializationHandler, LinkObserver
from conductor.routing.session_log import SessionLog
from conductor.routing.session_settings import SettingsLog
from conductor.routing.traced_port import TracedOwnRequests

__all__ = ["CLIENT_ROLES", "LinkState"]

CLIENT_ROLES: Final = frozenset({"client", "parent"})
"""Roles of peers that send requests to the chain."""
_NOT_RUNNING: Final = FailureErrors.plain(
    encode_error(INTERNAL_ERROR, "The component is not running")
)
Report = Callable[[str, str, dict[str, object]], None]
"""Called with a log event, its details, and what names the message (`message_names`) when a peer
violates the protocol."""


@attrs.define(eq=False, repr=False)
class LinkState:
    """The connection of one component, client or parent conductor, with what is known of it.

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
    settings_log: SettingsLog | None = None
    """Of an agent that can be restarted; also one of `observers_to`."""
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
    choose_chain: Callable[[InFlightRequest, str, Payload | None], bool] | None = None
    """Called last with each request of a client; returns whether it has handled it."""
    access_check: Callable[[str, Payload | None], None] | None = None
    """Called with each request and notification of the peer before any other processing; raises
    `RequestError` to refuse it."""
    on_plugin_info: Callable[[Payload | None], None] | None = None
    """Called with the params of a `PLUGIN_INFO` notification."""
    has_lost_login: bool = False
    """Whether the sessions were lost because the restarted agent requires a login again."""
    login_is_stale: bool = False
    """Whether the client has logged in at the process before this one, and not at this one: it may
    require a login again."""
    lost_sessions: set[str] = attrs.field(factory=set)
    """Sessions that a restarted agent has lost; each is removed when its next request was
    refused."""
    suppressed_session: str | None = None
    """The session of which notifications are dropped, because the client has seen them before
    (replay)."""
    traced_own_requests: TracedOwnRequests | None = None
    """Shows the requests of the conductor itself to the component, in a traced chain."""
    strips_proxy_meta: bool = False
    """Whether `_meta` members of proxies are removed from the peer's messages (`proxy_meta`); set
    for an agent behind proxies."""

    def record_settings(self) -> None:
        """Record mode, model and options of the agent's sessions for its restart."""
        self.settings_log = SettingsLog(self.session_log)
        self.observers_to += (self.settings_log,)

    def set_eof_error(self, error: bytes) -> None:
        """From now on, requests to the peer are answered with this wire error."""
        self.eof_error = error

    def take_connection(self) -> Connection | None:
        """The connection, which the link has no more."""
        connection, self.connection = self.connection, None
        return connection

    def clear(self) -> None:
        """Let go of all other objects, and forget all sessions, after the end of the chain."""
        self.connection = self.queue = self.initializer = None
        self.session_log = SessionLog()
        self.settings_log = None
        self.observers_to = self.observers_from = ()
        self.on_success = self.interceptor = self.access_check = self.on_plugin_info = None
        self.choose_chain = None

    def backlog(self) -> int:
        """Bytes that wait to be read by the component: write buffer and queue."""
        unwritten = 0 if self.connection is None else self.connection.write_buffer.size
        return unwritten if self.queue is None else unwritten + self.queue.size
