"""A plugin's two peers: the client and the agent, to send requests and notifications of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import attrs

from conductor.proxy.codec import decode_result, encode

__all__ = ["Answered", "Peer"]

Answered: TypeAlias = Callable[[bytes | None, bytes | None], None]
"""Called with a raw result or a raw error, one of them."""


@attrs.frozen
class Peer:
    """The neighbour in one direction, with whatever components are between."""

    name: str
    _request: Callable[[str, bytes | None], Awaitable[bytes]]
    _notify: Callable[[str, bytes | None], None]
    _ask: Callable[[str, bytes | None, Answered], Callable[[], None]]

    async def request(self, method: str, params: Any = None, *, result: Any = dict) -> Any:
        """Send a request and return its result, as the type `result`.

        Raises `RequestError` when it is answered with an error. While it waits, the handler's lane
        goes on; when the answer comes, the handler holds the lane that it came on.
        """
        return decode_result(await self._request(method, encode(params)), result)

    async def notify(self, method: str, params: Any = None) -> None:
        """Send a notification; it is queued behind what was sent before when this returns."""
        self._notify(method, encode(params))

    def send(self, method: str, params: Any = None) -> None:
        """`notify`, where nothing may wait."""
        self._notify(method, encode(params))

    def ask(self, method: str, params: Any, answered: Answered) -> Callable[[], None]:
        """Send a request without waiting for it, and return what cancels it.

        `answered` is called in the lane that the answer comes on, so what was sent before the
        answer has been dealt with and nothing sent after it has begun. It must not wait or raise.
        A request that was cancelled is answered all the same.
        """
        return self._ask(method, encode(params), answered)
