"""Stages that keep the `SessionLog` of a link. Pure."""

from __future__ import annotations

from conductor.errors import RequestError
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload, exception_to_error
from conductor.routing.session_log import LOGGED_METHODS, SessionLog
from conductor.routing.stage import ForwardRequest, ForwardResponse, Stage

__all__ = ["ClientSessions", "ComponentSessions", "ParentHandshake", "SuccessorSessions"]


class _LogStage(Stage):
    __slots__ = ("_log",)

    name = "session log"

    def __init__(self, log: SessionLog) -> None:
        self._log = log


class ComponentSessions(_LogStage):
    """Logs the set-ups that a component gets, and refuses those over a limit."""

    __slots__ = ()

    sent: frozenset[str] = LOGGED_METHODS

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        try:
            self._log.log_request(call, method, params)
        except RequestError as exc:
            self.port.answer(self, call, None, exception_to_error(exc))
        else:
            forward(call, method, params)

    def receive_response(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        self._log.log_response(call, result)
        forward(call, result, error)


class ParentHandshake(ComponentSessions):
    """Logs the handshake of a parent conductor as successor; its sessions are logged when they come
    from it."""

    __slots__ = ()

    sent: frozenset[str] = frozenset({"initialize"})


class SuccessorSessions(_LogStage):
    """Logs the successor's responses to the set-ups that a proxy has forwarded."""

    __slots__ = ()

    received: frozenset[str] = LOGGED_METHODS

    def send_response(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        self._log.log_successor_response(call, result)
        forward(call, result, error)


class ClientSessions(_LogStage):
    """Logs the set-ups that a client or parent conductor sends, and refuses those over a limit."""

    __slots__ = ()

    received: frozenset[str] = LOGGED_METHODS - {"initialize"}

    def receive_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        try:
            self._log.log_request(call, method, params)
        except RequestError as exc:
            call.source.respond(call, None, exception_to_error(exc))
        else:
            forward(call, method, params)

    def send_response(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        self._log.log_response(call, result)
        forward(call, result, error)
