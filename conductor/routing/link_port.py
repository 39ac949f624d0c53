"""The ports of a link: requests, notifications and responses to the component behind it; and the
state of its connection.

In: messages that have passed the stages of the port (`stage`). Out: lines for the component,
enveloped or plain. `Link` handles what the component sends, with the same state.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final, Literal, Protocol

from conductor.bounded_dict import BoundedDict
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import (
    CANCEL,
    Id,
    Payload,
    RawMember,
    encode_id,
    notification_pieces,
    request_pieces,
)
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.envelope import (
    TRIED,
    Dialect,
    notification_affixes,
    wrap_notification,
    wrap_request,
)
from conductor.routing.message_queue import MessageQueue
from conductor.routing.session_log import SessionLog
from conductor.routing.stage import StagedPort

__all__ = ["CLIENT_ROLES", "LinkPort", "LinkState", "Report", "Role"]

CLIENT_ROLES: Final = frozenset({"client", "parent"})
"""Roles of peers that send requests to the chain."""
Role = Literal["client", "proxy", "agent", "parent"]
Report = Callable[[str, str, dict[str, object]], None]
"""Called with a log event, its details, and what names the message (`message_names`) when a peer
violates the protocol."""
_MAX_LATE: Final = 200
"""Late answers that are expected: a component may never send them."""


class LinkPort(StagedPort):
    """One port of a link.

    A request gets an id of this connection and is recorded in `connection.sent`, so that its
    response finds its originator. One that is `is_enveloped` sends in the successor envelope.
    """

    __slots__ = ("is_enveloped", "link")

    def __init__(self, link: LinkState, *, is_enveloped: bool) -> None:
        super().__init__()
        self.link: LinkState = link
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
        self.dialect: Dialect = TRIED[0]
        self.initializer: Initializer | None = None
        """That of the component's present process; `None` if others initialize it."""
        self.connection: Connection | None = None
        self._late: BoundedDict[Id, tuple[InFlightRequest, float, float | None]] = BoundedDict(
            _MAX_LATE
        )
        """Requests that were answered in the peer's place, when, and after how many seconds, by
        their ids here."""
        self.initialized = False
        """Whether `initialize` of a client or parent has been answered."""
        self.session_log: SessionLog = SessionLog()
        self.queue: MessageQueue | None = None
        """Messages that wait while the component restarts or the client is away, else `None`."""

    def on_notification(self, method: str, params: Payload | None) -> None:
        """Handle one notification of the peer."""
        raise NotImplementedError

    def expect_late_answer(self, call: InFlightRequest, waited: float | None) -> None:
        """The request is answered in the peer's place, after so many seconds if known."""
        self._late[call.target_id] = call, monotonic(), waited

    def late_answer(self, id: Id) -> tuple[str, dict[str, object]] | None:
        """Description of the late answer with this id, and method and session of its request;
        `None` if it answers no request that was answered in place."""
        if id not in self._late:
            return None
        call, time, waited = self._late.pop(id)
        since = monotonic() - time
        sent = "" if waited is None else f"sent {since + waited:.1f} s ago, and "
        detail = f"the request was {sent}answered in its place {since:.1f} s ago"
        session = {} if call.session is None else {"session": call.session}
        return detail, {"method": call.method, **session}

    def connect(self, connection: Connection) -> None:
        """The peer is connected."""
        self.connection = connection

    def take_connection(self) -> Connection | None:
        """Detach the connection and return it."""
        connection, self.connection = self.connection, None
        self._late.clear()
        return connection

    def backlog(self) -> int:
        """Bytes that wait to be read by the component: write buffer and queue."""
        unwritten = 0 if self.connection is None else self.connection.write_buffer.size
        return unwritten if self.queue is None else unwritten + self.queue.size
