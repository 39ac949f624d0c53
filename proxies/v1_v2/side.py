"""Common base of both conversions of `v1_v2`: their proxy, their sessions, the handshake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

import attrs

from conductor.error_codes import INTERNAL_ERROR
from conductor.proxy import Proxy, RequestError
from proxies.v1_v2.members import Json

__all__ = ["Side"]

SessionT = TypeVar("SessionT")


@attrs.define
class Side(Generic[SessionT]):
    """Sends converted messages to the two neighbours of the proxy."""

    proxy: Proxy
    sessions: Mapping[str, SessionT]
    params: Json
    """The client's `initialize` params."""
    result: Json
    """The agent's `initialize` result."""

    def _session(self, id: str) -> SessionT:
        return self.sessions[id]

    async def _ask(self, method: str, params: Json) -> Json:
        result = await self.proxy.agent.request(method, params)
        if result is not None and not isinstance(result, dict):
            text = f"v1_v2: the agent's answer to {method} is not an object"
            raise RequestError(INTERNAL_ERROR, text, {"answer": type(result).__name__})
        return result or {}

    async def _tell(self, id: str, update: Json) -> None:
        await self.proxy.client.notify("session/update", {"sessionId": id, "update": update})
