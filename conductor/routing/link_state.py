"""State of a component's connection, shared by its link and the ports of the link.

`Link` handles what the peer sends, `LinkPort` sends to the peer; both read and change this state.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal

from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.routing.envelope import DIALECTS, Dialect
from conductor.routing.initialization import InitializationHandler
from conductor.routing.message_queue import MessageQueue
from conductor.routing.session_log import SessionLog
from conductor.routing.stage import StagedPort

if TYPE_CHECKING:
    from conductor.routing.late_answers import LateAnswers

__all__ = ["CLIENT_ROLES", "LinkState", "Report", "Role"]

CLIENT_ROLES: Final = frozenset({"client", "parent"})
"""Roles of peers that send requests to the chain."""
Role = Literal["client", "proxy", "agent", "parent"]
Report = Callable[[str, str, dict[str, object]], None]
"""Called with a log event, its details, and what names the message (`message_names`) when a peer
violates the protocol."""


class LinkState:
    """The connection of one component, client or parent conductor, with what is known of it.

    `role` decides which messages the peer may send: a "proxy" and a "parent" (the parent conductor,
    in proxy mode) have a successor; a "client" and an "agent" have none.
    """

    plain: StagedPort
    """The port for traffic outside of envelopes."""
    enveloped: StagedPort | None
    """The port for traffic inside of envelopes, of a component that has a successor."""

    def __init__(self, name: str, role: Role, report: Report) -> None:
        self.name = name
        self.role = role
        self.report = report
        self.dialect: Dialect = DIALECTS[0]
        self.initializer: InitializationHandler | None = None
        self.connection: Connection | None = None
        self.late_answers: LateAnswers | None = None
        """Late answers to expect; `None` before a request was answered in place."""
        self.initialized = False
        """Whether `initialize` of a client or parent has been answered."""
        self.session_log: SessionLog = SessionLog()
        self.queue: MessageQueue | None = None
        """Messages that wait while the component restarts; `None` while it runs."""

    def on_notification(self, method: str, params: Payload | None) -> None:
        """Handle one notification of the peer."""
        raise NotImplementedError

    def expect_late_answer(self, call: InFlightRequest, waited: float | None) -> None:
        """The request is answered in the peer's place, after so many seconds if known."""
        if self.late_answers is None:
            from conductor.routing.late_answers import LateAnswers

            self.late_answers = LateAnswers()
        self.late_answers.expect(call, monotonic(), waited)

    def connect(self, connection: Connection) -> None:
        """The peer is connected."""
        self.connection = connection

    def take_connection(self) -> Connection | None:
        """Detach the connection and return it."""
        connection, self.connection = self.connection, None
        self.late_answers = None
        return connection

    def backlog(self) -> int:
        """Bytes that wait to be read by the component: write buffer and queue."""
        unwritten = 0 if self.connection is None else self.connection.write_buffer.size
        return unwritten if self.queue is None else unwritten + self.queue.size
