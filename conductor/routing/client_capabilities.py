"""Requests that a client has not announced are answered in its place: many clients never answer a
request that they do not know. Pure."""

from __future__ import annotations

from conductor.acp import MCP_METHODS
from conductor.adapters.negotiated import ANNOUNCED_METHODS, Announced
from conductor.error_codes import INVALID_PARAMS
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import member_at
from conductor.jsonrpc.messages import METHOD_NOT_FOUND, Payload, encode_error
from conductor.routing.session_log import SessionLog
from conductor.routing.stage import ForwardRequest, Stage

__all__ = ["ClientCapabilities"]


class ClientCapabilities(Stage):
    """`announced` is `None` before the chain is initialized; then only MCP requests without any
    server over ACP in `sessions` are refused."""

    __slots__ = ("_sessions", "announced")

    name = "client capabilities"
    sent: frozenset[str] = MCP_METHODS | frozenset(ANNOUNCED_METHODS)

    def __init__(self, sessions: SessionLog) -> None:
        self._sessions = sessions
        self.announced: Announced | None = None

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        refusal = self._refusal(method, params)
        if refusal is None:
            forward(call, method, params)
        else:
            self.port.answer(self, call, None, refusal)

    def _refusal(self, method: str, params: Payload | None) -> bytes | None:
        if method in MCP_METHODS and not self._sessions.has_servers:
            # the proxy that provided the server was bypassed
            return encode_error(METHOD_NOT_FOUND, "No component provides this MCP server", method)
        client = self.announced
        if method not in ANNOUNCED_METHODS or client is None:
            return None
        path = ANNOUNCED_METHODS[method]
        code, problem = METHOD_NOT_FOUND, "Method not found"
        if client.takes(method):
            modes = [mode for mode in ("form", "url") if client.has(*path, mode)]
            if method != "elicitation/create" or len(modes) != 1:
                return None
            mode = (member_at(params or b"", "mode") or b'"form"').decode().strip('"')
            if mode in modes or mode not in ("form", "url"):
                return None
            # RFD elicitation, error handling
            code, problem, path = INVALID_PARAMS, "Invalid params", (*path, mode)
        capability = ".".join(path)
        problem += f": the client does not announce the capability {capability}"
        return encode_error(code, problem, {"method": method, "capability": capability})
