"""Stages before an agent that was restarted: the sessions that it has lost are refused, and a
required login is explained. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from conductor.acp import LOGIN_METHODS, SESSION_SETUP_METHODS, session_id_of
from conductor.error_codes import AUTHENTICATION_REQUIRED
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import INTERNAL_ERROR, Payload, encode_error, error_to_exception
from conductor.routing.session_log import SessionLog
from conductor.routing.stage import EVERY, ForwardRequest, ForwardResponse, Stage

__all__ = ["LostSessions", "StaleLogin"]


class LostSessions(Stage):
    """Refuses the first request for each session that `agent` has lost, then removes itself.

    `known` are the sessions that it has now; `needs_login`: it has lost them with its login.
    """

    __slots__ = ("_agent", "_known", "_lost", "_needs_login")

    name = "lost sessions"
    sent: frozenset[str] = EVERY

    def __init__(
        self, agent: str, lost: Iterable[str], known: SessionLog, *, needs_login: bool
    ) -> None:
        self._agent = agent
        self._lost = set(lost)
        self._known = known
        self._needs_login = needs_login

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        session = session_id_of(params)
        if session not in self._lost:
            forward(call, method, params)
            return
        self._lost.discard(session)
        if method in SESSION_SETUP_METHODS or session in self._known.sessions:
            forward(call, method, params)  # it is being set up, or a new session has the same id
        else:
            self.port.answer(self, call, None, self._refusal(session))
        if not self._lost:
            self.port.remove(self)

    def _refusal(self, session: str) -> bytes:
        code = INTERNAL_ERROR
        message = f"{self._agent} was restarted and has lost "
        if self._needs_login:
            code = AUTHENTICATION_REQUIRED
            message += "its login: log in again, then load this session, or start a new one"
        else:
            message += "this session; start a new one, or load it"
        return encode_error(code, message, {"component": self._agent, "sessionId": session})


class StaleLogin(Stage):
    """Gives the reason for errors of set-ups that require a login: the client has logged in at the
    process before this one. Removes itself when `agent` has accepted a login or a set-up."""

    __slots__ = ("_agent",)

    name = "stale login"
    sent: frozenset[str] = LOGIN_METHODS | SESSION_SETUP_METHODS

    def __init__(self, agent: str) -> None:
        self._agent = agent

    def receive_response(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        if result is not None:
            self.port.remove(self)
        elif error is not None and call.method in SESSION_SETUP_METHODS:
            error = self._explained(error)
        forward(call, result, error)

    def _explained(self, error: Payload) -> Payload:
        refusal = error_to_exception(error)
        if refusal.code != AUTHENTICATION_REQUIRED:
            return error
        reason = f"{self._agent} was restarted and has lost its login: log in again"
        return encode_error(refusal.code, f"{refusal.message}: {reason}", refusal.data)
