"""Agent that answers in place of a chain that failed to start, and explains the failure. Pure.

If `initialize` is answered with an error, editors show "failed to initialize" without the reason.
They show the messages of this agent like those of any agent. It supports both protocol versions,
and of each only the mandatory part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Final

from conductor import __version__
from conductor.acp import session_id_of
from conductor.adapters.negotiated import announced_by_client
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import decoded_members
from conductor.jsonrpc.messages import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Payload,
    encode_error,
    encode_lossy,
)
from conductor.routing.port import Port

__all__ = ["StartFailureAgent", "unannounced_capabilities"]

_IGNORED_MEMBERS: Final = frozenset({"protocolVersion", "_meta", "info", "agentInfo", "acp"})
"""Members of an `initialize` result that a client does not need to know; MCP over ACP (`acp`) is
for proxies."""


_numbers: Final = count(1)
"""Numbers in ids: unique, as a client may have several chains that did not start."""


class StartFailureAgent:
    """Answers requests in place of the chain; `text` is its answer to each prompt."""

    def __init__(self, client: Port, initialize: Payload | None) -> None:
        self.version: int = 2 if announced_by_client(initialize).version >= 2 else 1
        self.text = ""
        self.sessions: set[str] = set()
        """Ids of its open sessions."""
        self._client = client

    @property
    def initialize_result(self) -> bytes:
        info = {"name": "acp-conductor", "title": "acp-conductor", "version": __version__}
        if self.version == 2:
            capabilities: dict[str, Any] = {"session": {}}
            return encode_lossy({"protocolVersion": 2, "info": info, "capabilities": capabilities})
        return encode_lossy(
            {
                "protocolVersion": 1,
                "agentInfo": info,
                "agentCapabilities": {},
                "authMethods": [],
            }
        )

    def open(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """Open a session, and answer the session set-up."""
        session = None if method in ("session/new", "session/fork") else session_id_of(params)
        result: dict[str, Any] = {}
        if session is None:
            session = result["sessionId"] = f"acp-conductor-{next(_numbers)}"
        self.sessions.add(session)
        self._client.respond(call, encode_lossy(result), None)

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        session = session_id_of(params)
        if method == "session/prompt" and session in self.sessions:
            self._prompt(call, session, params)
        elif method in ("session/close", "session/delete") and session in self.sessions:
            self.sessions.discard(session)
            self._client.respond(call, b"{}", None)
        elif method == "session/list":
            self._client.respond(call, b'{"sessions":[]}', None)
        elif method == "initialize":
            problem = "a connection is initialized only once"
            error = encode_error(INVALID_REQUEST, "Invalid request", problem)
            self._client.respond(call, None, error)
        else:
            self._client.respond(call, None, encode_error(METHOD_NOT_FOUND, self.text, method))

    def _prompt(self, call: InFlightRequest, session: str, params: Payload | None) -> None:
        chunk: dict[str, Any] = {
            "sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": self.text},
        }
        if self.version == 1:
            self._update(session, chunk)
            self._client.respond(call, b'{"stopReason":"end_turn"}', None)
            return
        number = next(_numbers)
        prompt, reply = f"acp-conductor-p{number}", f"acp-conductor-r{number}"
        content = decoded_members(params).get("prompt") or []
        self._client.respond(call, encode_lossy({"messageId": prompt}), None)
        self._update(
            session, {"sessionUpdate": "user_message", "messageId": prompt, "content": content}
        )
        self._update(session, {"sessionUpdate": "state_update", "state": "running"})
        self._update(session, {**chunk, "messageId": reply})
        idle = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}
        self._update(session, idle)

    def _update(self, session: str, update: Mapping[str, Any]) -> None:
        params = encode_lossy({"sessionId": session, "update": update})
        self._client.notify("session/update", params)


def unannounced_capabilities(announced: bytes, real: bytes) -> list[str]:
    """Paths of the capabilities in `real` that `announced` lacks; both are `initialize` results."""
    known = set(_capability_paths(decoded_members(announced)))
    return [path for path in _capability_paths(decoded_members(real)) if path not in known]


def _capability_paths(value: Any, path: str = "") -> Iterator[str]:
    for name, inner in value.items():
        if name in _IGNORED_MEMBERS:
            continue
        where = f"{path}.{name}" if path else name
        if isinstance(inner, dict) and (inner or name.endswith("Capabilities")):
            yield from _capability_paths(inner, where)
        elif inner not in (False, None, []):
            yield where.removeprefix("agentCapabilities.").removeprefix("capabilities.")
