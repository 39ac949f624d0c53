"""A plugin's two peers: the client and the agent, to send requests and notifications of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from conductor.proxy.codec import decode_result, encode

__all__ = ["Peer"]


@attrs.frozen
class Peer:
    """The neighbour in one direction, with whatever components are between."""

    name: str
    _request: Callable[[str, bytes | None], Awaitable[bytes]]
    _notify: Callable[[str, bytes | None], None]

    async def request(self, method: str, params: Any = None, *, result: Any = dict) -> Any:
        """Send a request and return its result, as the type `result`.

        Raises `RequestError` when it is answered with an error. While it waits, the handler's lane
        goes on; when the answer comes, the handler holds the lane that it came on.
        """
        return decode_result(await self._request(method, encode(params)), result)

    async def notify(self, method: str, params: Any = None) -> None:
        """Send a notification; it is queued behind what was sent before when this returns."""
        self._notify(method, encode(params))
