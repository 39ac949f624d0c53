"""The ports of a link: requests, notifications and responses to the component behind it.

In: messages of the two neighbours. Out: lines for the component, enveloped or plain; an error at
once for a request that it cannot get; or an entry in the queue while it restarts.
"""

from __future__ import annotations

import msgspec

from conductor.acp import MCP_METHODS, SESSION_CANCEL, SESSION_SETUP_METHODS, session_id_of
from conductor.adapters.negotiated import ANNOUNCED_METHODS
from conductor.error_codes import AUTHENTICATION_REQUIRED, INVALID_PARAMS
from conductor.errors import RequestError
from conductor.json_values import decode_value
from conductor.jsonrpc.codec import DECODE_ERRORS
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
from conductor.routing.failure_errors import answer_of_gone
from conductor.routing.link_state import CLIENT_ROLES, LinkState
from conductor.routing.message_queue import QueuedMessage
from conductor.routing.port import Port
from conductor.routing.session_log import LOGGED_METHODS

__all__ = ["LinkPort"]


class LinkPort(Port):
    """One port of a link.

    A request gets an id of this connection and is recorded in `connection.sent`, so that its
    response finds its originator. With `enveloped`, messages are sent in the successor envelope.
    """

    __slots__ = ("enveloped", "link")

    def __init__(self, link: LinkState, *, enveloped: bool) -> None:
        super().__init__()
        self.link: LinkState = link
        self.enveloped: bool = enveloped

    @property
    def component_name(self) -> str:
        # An outer conductor brings the messages of both neighbours.
        return "agent" if self.enveloped and self.link.role == "parent" else self.link.name

    def sender_of(self, method: str) -> str:
        return self.component_name

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        link = self.link
        connection = link.connection
        if link.queue is not None:
            link.queue.append(QueuedMessage.copy_of(call, method, params, self))
            return
        if connection is None or link.eof_error is not None:
            error = link.eof_error or link.disconnect_error.answer(method, delivered=False)
            self.neighbour.respond(call, *answer_of_gone(method, error))
            return
        if link.lost_sessions and self._answer_lost_session(call, method, params):
            return
        if method in LOGGED_METHODS and (not self.enveloped or link.role == "parent"):
            if link.intercept_setup is not None and link.intercept_setup(call, method, params):
                return
            try:
                # The sessions of a parent conductor are logged when they come from it.
                if not self.enveloped or method == "initialize":
                    link.session_log.log_request(call, method, params)
            except RequestError as exc:
                self.neighbour.respond(call, None, exception_to_error(exc))
                return
            if method == "initialize" and link.initializer is not None:
                link.initializer.begin(call, params)
                return
        if link.role == "client" and (refusal := _refusal_for_client(link, method, params)):
            self.neighbour.respond(call, None, refusal)
            return
        if link.cancelled_answer is not None and (answer := link.cancelled_answer(method, params)):
            self.neighbour.respond(call, answer, None)
            return
        call.target = self
        if not self.enveloped:
            for each in link.outgoing_observers:
                each.on_request(call, method, params)
        if link.session_names is not None:
            params = link.session_names.to_agent(params)
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
        code = INTERNAL_ERROR
        message = f"{name} was restarted and has lost this session; start a new one, or load it"
        if self.link.has_lost_login:
            code = AUTHENTICATION_REQUIRED
            message = f"{name} was restarted and has lost its login: log in again, then load this "
            message += "session, or start a new one"
        data = {"component": name, "sessionId": session}
        self.neighbour.respond(call, None, encode_error(code, message, data))
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
            for each in link.outgoing_observers:
                each.on_session_cancel(params)
        for each in link.incoming_observers:
            if each.wants_notifications:
                each.on_notification(method, params)
        if link.session_names is not None:
            params = link.session_names.to_agent(params)
        if self.enveloped:
            connection.write(wrap_notification(link.dialect, method, params))
        else:
            connection.write(notification_pieces(method, params))

    def notify_batch(self, notifications: NotificationBatch) -> None:
        link = self.link
        connection = link.connection
        is_plain = link.queue is None and link.session_names is None
        if connection is None or not is_plain or notifications.method == SESSION_CANCEL:
            super().notify_batch(notifications)
            return
        for each in link.incoming_observers:
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
        for each in self.link.incoming_observers:
            each.on_response(call)
        if error is not None and self.link.patch_error is not None:
            error = self.link.patch_error(error)
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
        for each in self.link.outgoing_observers:
            each.on_cancel_request(call)
        params = b'{"requestId":%b}' % encode_id(call.target_id)
        if self.enveloped and self.link.role == "parent":
            connection.write(wrap_notification(self.link.dialect, CANCEL, params))
        else:
            connection.write(notification_pieces(CANCEL, params))


class _ElicitationMode(msgspec.Struct):
    mode: str = "form"


def _refusal_for_client(link: LinkState, method: str, params: Payload | None) -> bytes | None:
    """The error with which the conductor refuses a request in the client's place: many clients do
    not answer a request that they do not know."""
    if method in MCP_METHODS and not link.session_log.has_servers:
        # the proxy that provided the server was bypassed
        return encode_error(METHOD_NOT_FOUND, "No component provides this MCP server", method)
    client = link.announced
    if method not in ANNOUNCED_METHODS or client is None:
        return None
    path = ANNOUNCED_METHODS[method]
    code, problem = METHOD_NOT_FOUND, "Method not found"
    if client.takes(method):
        modes = [mode for mode in ("form", "url") if client.has(*path, mode)]
        if method != "elicitation/create" or len(modes) != 1:
            return None
        mode = _mode(params)
        if mode in modes or mode not in ("form", "url"):
            return None
        # RFD elicitation, error handling
        code, problem, path = INVALID_PARAMS, "Invalid params", (*path, mode)
    capability = ".".join(path)
    problem += f": the client does not announce the capability {capability}"
    return encode_error(code, problem, {"method": method, "capability": capability})


def _mode(params: Payload | None) -> str:
    try:
        return decode_value(params or b"{}", type=_ElicitationMode).mode
    except DECODE_ERRORS:
        return ""
