"""What is sent to a component: one of the one or two peers that its wire carries.

A request gets an id of this connection, and a call that knows its way back; a message for the
successor is put into the envelope. While the component is started again, all of it waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from conductor.connection.calls import Call
from conductor.connection.runs import Run
from conductor.errors import RequestError
from conductor.messages import (
    CANCEL,
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    Payload,
    encode_error,
    encode_id,
    error_of,
    notification_pieces,
    request_pieces,
)
from conductor.routing.envelope import notification_frame, wrap_notification, wrap_request
from conductor.routing.held import Held
from conductor.routing.recollection import REMEMBERED, SET_UPS
from conductor.routing.sides import Side
from conductor.session_ids import session_of

if TYPE_CHECKING:
    from conductor.routing.wire import Wire

__all__ = ["CLIENTS", "PROMPT", "SESSION_CANCEL", "WireSide"]

CLIENTS: Final = frozenset({"client", "parent"})
"""Roles of those who ask the chain for something."""
SESSION_CANCEL: Final = "session/cancel"
PROMPT: Final = "session/prompt"
_FOR_SERVERS: Final = frozenset({"mcp/connect", "mcp/message", "mcp/disconnect"})
"""What whoever offers an MCP server is asked. A client that offers none may not know how to refuse;
it is asked when the proxy that did was left out."""


class WireSide(Side):
    """One of the peers that a wire carries."""

    __slots__ = ("wire", "wrapped")

    def __init__(self, wire: Wire, *, wrapped: bool) -> None:
        super().__init__()
        self.wire = wire
        self.wrapped = wrapped

    def request(self, call: Call, method: str, params: Payload | None) -> None:
        wire = self.wire
        connection = wire.connection
        if wire.held is not None:
            wire.held.keep(Held(self, call, method, None if params is None else bytes(params)))
            return
        if connection is None or wire.silent is not None:
            error = wire.silent or wire.why_gone.answer(method, delivered=False)
            self.neighbour.respond(call, None, error)
            return
        if wire.lost and self._is_lost(call, method, params):
            return
        if method in REMEMBERED and not self.wrapped:
            if wire.interceptor is not None and wire.interceptor(call, method, params):
                return
            try:
                wire.recollection.asked(call, method, params)
            except RequestError as exc:
                self.neighbour.respond(call, None, error_of(exc))
                return
            if method == "initialize" and wire.init is not None:
                wire.init.begin(call, params)
                return
        if method in _FOR_SERVERS and wire.role == "client" and not wire.recollection.has_servers:
            error = encode_error(METHOD_NOT_FOUND, "Nobody offers this MCP server", method)
            self.neighbour.respond(call, None, error)
            return
        call.target = self
        if wire.turns is not None and method == PROMPT:
            wire.turns.on_prompt(call, params)
        if wire.observer is not None and not self.wrapped:
            wire.observer.on_asked(call, method, params)
        id = connection.open(call)
        if self.wrapped:
            connection.write(wrap_request(wire.dialect, id, method, params))
        else:
            connection.write(request_pieces(id, method, params))
        if call.cancelled:
            self.cancel(call)

    def backlog(self) -> int:
        return self.wire.backlog()

    def _is_lost(self, call: Call, method: str, params: Payload | None) -> bool:
        """Answer, once, a request about a session that the component lost when it was restarted."""
        session = session_of(params)
        if session not in self.wire.lost:
            return False
        self.wire.lost.discard(session)
        if method in SET_UPS or session in self.wire.recollection.sessions:
            return False  # it is set up, or a new one has got the same id
        name = self.wire.name
        message = f"{name} was restarted and has lost this session; start a new one, or load it"
        data = {"component": name, "sessionId": session}
        self.neighbour.respond(call, None, encode_error(INTERNAL_ERROR, message, data))
        return True

    def notify(self, method: str, params: Payload | None) -> None:
        connection = self.wire.connection
        if self.wire.held is not None:
            self.wire.held.keep(Held(self, None, method, None if params is None else bytes(params)))
            return
        if connection is None:
            return
        if self.wire.turns is not None and method == SESSION_CANCEL:
            self.wire.turns.on_cancel(params)
        if self.wire.client_turns is not None and self.wire.client_turns.reports_states:
            self.wire.client_turns.on_notification(method, params)
        if self.wrapped:
            connection.write(wrap_notification(self.wire.dialect, method, params))
        else:
            connection.write(notification_pieces(method, params))

    def notify_run(self, run: Run) -> None:
        connection = self.wire.connection
        if connection is None or self.wire.held is not None or run.method == SESSION_CANCEL:
            super().notify_run(run)
            return
        if self.wire.client_turns is not None and self.wire.client_turns.reports_states:
            self.wire.client_turns.on_run(run)
        head, tail = notification_frame(self.wire.dialect if self.wrapped else None, run.method)
        connection.write((run.framed(head, tail),))

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        if call.method in REMEMBERED:
            if self.wire.role in CLIENTS:
                self.wire.recollection.answered(call, result)
            else:
                self.wire.recollection.inner_answered(call, result)
            if call.method == "initialize" and self.wire.init is not None:
                self.wire.init.successor_answered(call)
        if self.wire.observer is not None:
            self.wire.observer.on_told(call)
        if self.wire.client_turns is not None:
            self.wire.client_turns.on_answered(call)
        call.source.respond(call, result, error)

    def cancel(self, call: Call) -> None:
        """Re-issue the cancellation with this hop's id (interop §1.5: plain, but to a parent)."""
        connection = self.wire.connection
        if connection is None or connection.sent.get(call.target_id) is not call:
            return
        if self.wire.turns is not None:
            self.wire.turns.on_withdrawn(call)
        params = b'{"requestId":%b}' % encode_id(call.target_id)
        if self.wrapped and self.wire.role == "parent":
            connection.write(wrap_notification(self.wire.dialect, CANCEL, params))
        else:
            connection.write(notification_pieces(CANCEL, params))
