"""Capabilities: reading those of an `initialize` result, adding what the conductor has, and
answering requests that a client has not announced in its place. Pure.

The conductor accepts `acp` MCP servers from proxies and clients even if the agent does not, and
announces that (RFDs proxy-chains, mcp-over-acp). Version 1 has the capability at
`agentCapabilities.mcpCapabilities.acp`, version 2 at `capabilities.session.mcp.acp`. Only that
member changes: the others keep their bytes. Input and output are the raw JSON of the `result`
member.
"""

from __future__ import annotations

from typing import Final

from conductor.acp import MCP_METHODS
from conductor.adapters.negotiated import ANNOUNCED_METHODS, Announced
from conductor.error_codes import INVALID_PARAMS
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import member_at, with_member
from conductor.jsonrpc.messages import METHOD_NOT_FOUND, Payload, encode_error
from conductor.routing.session_log import SessionLog
from conductor.routing.stage import ForwardRequest, Stage

__all__ = [
    "ClientCapabilities",
    "has_mcp_over_acp",
    "protocol_version",
    "supports_resume",
    "with_bridgeable_mcp_over_acp",
    "with_mcp_over_acp",
    "with_session_close",
]

_V1: Final = (("agentCapabilities", "mcpCapabilities", "acp"), b"true")
_V2: Final = (("capabilities", "session", "mcp", "acp"), b"{}")


def with_mcp_over_acp(result: bytes) -> bytes:
    """The result with the capability; unchanged if it is there already or the result is no
    object."""
    path, value = _V2 if protocol_version(result) == 2 else _V1
    try:
        return result if _has(result, path) else with_member(result, path, value)
    except ValueError:
        return result


def with_bridgeable_mcp_over_acp(result: bytes) -> bytes:
    """`with_mcp_over_acp` if the agent accepts stdio servers, into which the bridge turns servers
    over ACP: every agent of version 1 does, one of version 2 announces it."""
    if protocol_version(result) == 1 or _has(result, ("capabilities", "session", "mcp", "stdio")):
        return with_mcp_over_acp(result)
    return result


def has_mcp_over_acp(result: bytes) -> bool:
    """Whether the result announces that MCP servers over ACP are accepted."""
    return _has(result, (_V2 if protocol_version(result) == 2 else _V1)[0])


def with_session_close(result: bytes) -> bytes:
    """The result with the capability `session/close`, which is mandatory in version 2."""
    path = ("agentCapabilities", "sessionCapabilities", "close")
    try:
        is_there = protocol_version(result) == 2 or _has(result, path)
        return result if is_there else with_member(result, path, b"{}")
    except ValueError:
        return result


def supports_resume(result: bytes) -> bool:
    """Whether the agent has `session/resume`, which is mandatory in version 2."""
    if protocol_version(result) == 2:
        return True
    return _has(result, ("agentCapabilities", "sessionCapabilities", "resume"))


def protocol_version(result: Payload) -> int:
    """The protocol version of an `initialize` result: 2 if it is 2, else 1."""
    return 2 if member_at(result, "protocolVersion") == b"2" else 1


def _has(result: bytes, path: tuple[str, ...]) -> bool:
    return member_at(result, *path) not in (None, b"false", b"null")


class ClientCapabilities(Stage):
    """Answers requests that a client has not announced in its place: many clients never answer a
    request that they do not know.

    `announced` is `None` before the chain is initialized; then only MCP requests without any
    server over ACP in `sessions` are refused.
    """

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
