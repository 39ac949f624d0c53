"""The interface of a running chain to a plugin, behind the methods of `Proxy` and `Agent`.

`conductor.plugins` implements it; this protocol keeps the author's API free of imports from there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol

from conductor.proxy.agent_peer import AgentPeer
from conductor.proxy.peers import DeferredAnswer, NotificationTap
from conductor.proxy.second_agent_host import SecondAgentHost

__all__ = ["Runtime"]


class Runtime(SecondAgentHost, Protocol):
    """The interface of a running chain to its plugin."""

    agent: AgentPeer
    required: bool

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None: ...

    async def wait_room(self) -> None: ...

    def made_room(self) -> None: ...

    @property
    def answering(self) -> bool: ...

    def defer(self, cancelled: Callable[[], None]) -> DeferredAnswer: ...

    def after_answer(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None: ...

    def tap(
        self, source: Literal["client", "agent"], method: str, tap: NotificationTap
    ) -> Callable[[], None]:
        """Call `tap` with every notification `method` from `source`; returns a function that
        removes the tap."""
