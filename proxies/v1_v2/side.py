"""Common base of both conversions of `v1_v2`: their proxy, their sessions, the handshake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

import attrs

from conductor.error_codes import INTERNAL_ERROR
from conductor.proxy import Proxy, RequestError
from proxies.v1_v2.members import Json

__all__ = ["Side", "answered_object"]

_NEW: Final = ("session/new", "session/fork")

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

    def _session(self, params: Json) -> SessionT:
        return self.sessions[str(params.get("sessionId"))]

    async def _ask(self, method: str, params: Json) -> Json:
        result = await self.proxy.agent.request(method, params)
        return {} if result is None else answered_object(method, result)

    async def _open(self, method: str, params: Json) -> Json:
        """Set up a session; a new one needs an id of the agent's."""
        result = await self._ask(method, params)
        if method in _NEW and not isinstance(result.get("sessionId"), str):
            text = f"v1_v2: the agent's answer to {method} has no `sessionId`"
            raise RequestError(INTERNAL_ERROR, text)
        return result

    async def _tell(self, id: str, update: Json) -> None:
        await self.proxy.client.notify("session/update", {"sessionId": id, "update": update})


def answered_object(method: str, result: Any) -> Json:
    """The agent's answer, if it is an object. Raises `RequestError`, which names the adapter."""
    if not isinstance(result, dict):
        text = f"v1_v2: the agent's answer to {method} is not an object"
        raise RequestError(INTERNAL_ERROR, text, {"answer": type(result).__name__})
    return result
