"""What is sent to a component: one of the one or two peers that its link carries.

A request gets an id of this connection, and a call that knows its way back; a message for the
successor is put into the envelope. While the component is started again, all of it waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from conductor.acp import session_id_of
from conductor.errors import RequestError
from conductor.jsonrpc.in_flight import InFlightRequest
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
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.envelope import notification_affixes, wrap_notification, wrap_request
from conductor.routing.message_queue import QueuedMessage
from conductor.routing.port import Port
from conductor.routing.session_log import LOGGED_METHODS, SESSION_SETUP_METHODS

if TYPE_CHECKING:
    from conductor.routing.link import Link

__all__ = ["CLIENT_ROLES", "PROMPT", "SESSION_CANCEL", "LinkPort"]

CLIENT_ROLES: Final = frozenset({"client", "parent"})
"""Roles of those who ask the chain for something."""
SESSION_CANCEL: Final = "session/cancel"
PROMPT: Final = "session/prompt"
_MCP_SERVER_METHODS: Final = frozenset({"mcp/connect", "mcp/message", "mcp/disconnect"})
"""What whoever offers an MCP server is asked. A client that offers none may not know how to refuse;
it is asked when the proxy that did was left out."""


class LinkPort(Port):
    """One of the peers that a link carries."""

    __slots__ = ("enveloped", "link")

    def __init__(self, link: Link, *, enveloped: bool) -> None:
        super().__init__()
        self.link = link
        self.enveloped = enveloped

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        link = self.link
        connection = link.connection
        if link.queue is not None:
            link.queue.append(
                QueuedMessage(self, call, method, None if params is None else bytes(params))
            )
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
        if (
            method in _MCP_SERVER_METHODS
            and link.role == "client"
            and not link.session_log.has_servers
        ):
            error = encode_error(METHOD_NOT_FOUND, "Nobody offers this MCP server", method)
            self.neighbour.respond(call, None, error)
            return
        call.target = self
        if link.turn_observer is not None and method == PROMPT:
            link.turn_observer.on_prompt(call, params)
        if link.observer is not None and not self.enveloped:
            link.observer.on_request_to(call, method, params)
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
        """Answer, once, a request about a session that the component lost when it was restarted."""
        session = session_id_of(params)
        if session not in self.link.lost_sessions:
            return False
        self.link.lost_sessions.discard(session)
        if method in SESSION_SETUP_METHODS or session in self.link.session_log.sessions:
            return False  # it is set up, or a new one has got the same id
        name = self.link.name
        message = f"{name} was restarted and has lost this session; start a new one, or load it"
        data = {"component": name, "sessionId": session}
        self.neighbour.respond(call, None, encode_error(INTERNAL_ERROR, message, data))
        return True

    def notify(self, method: str, params: Payload | None) -> None:
        connection = self.link.connection
        if self.link.queue is not None:
            self.link.queue.append(
                QueuedMessage(self, None, method, None if params is None else bytes(params))
            )
            return
        if connection is None:
            return
        if self.link.turn_observer is not None and method == SESSION_CANCEL:
            self.link.turn_observer.on_cancel(params)
        if self.link.client_turns is not None and self.link.client_turns.wants_updates:
            self.link.client_turns.on_notification(method, params)
        if self.enveloped:
            connection.write(wrap_notification(self.link.dialect, method, params))
        else:
            connection.write(notification_pieces(method, params))

    def notify_batch(self, notifications: NotificationBatch) -> None:
        connection = self.link.connection
        if (
            connection is None
            or self.link.queue is not None
            or notifications.method == SESSION_CANCEL
        ):
            super().notify_batch(notifications)
            return
        if self.link.client_turns is not None and self.link.client_turns.wants_updates:
            self.link.client_turns.on_notifications(notifications)
        head, tail = notification_affixes(
            self.link.dialect if self.enveloped else None, notifications.method
        )
        connection.write((notifications.as_lines(head, tail),))

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        if call.method in LOGGED_METHODS:
            if self.link.role in CLIENT_ROLES:
                self.link.session_log.log_response(call, result)
            else:
                self.link.session_log.log_successor_response(call, result)
            if call.method == "initialize" and self.link.initializer is not None:
                self.link.initializer.successor_answered(call)
        if self.link.observer is not None:
            self.link.observer.on_response_to(call)
        if self.link.client_turns is not None:
            self.link.client_turns.on_response_from(call)
        call.source.respond(call, result, error)

    def cancel(self, call: InFlightRequest) -> None:
        """Re-issue the cancellation with this hop's id (interop §1.5: plain, but to a parent)."""
        connection = self.link.connection
        if connection is None or connection.sent.get(call.target_id) is not call:
            return
        if self.link.turn_observer is not None:
            self.link.turn_observer.on_cancel_request(call)
        params = b'{"requestId":%b}' % encode_id(call.target_id)
        if self.enveloped and self.link.role == "parent":
            connection.write(wrap_notification(self.link.dialect, CANCEL, params))
        else:
            connection.write(notification_pieces(CANCEL, params))
