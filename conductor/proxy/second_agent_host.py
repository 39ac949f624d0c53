"""The runtime's interface for second agents: a chain, and a connection to it as its client.

`SecondAgent` speaks ACP over an `AgentConnection`; `SecondAgentHost` starts and stops the chain.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol, TypeAlias

from conductor.proxy.agent_relay import RelayHost
from conductor.proxy.peers import NotificationTap

__all__ = ["AgentConnection", "AgentSource", "RequestHandler", "SecondAgentHost"]

AgentSource: TypeAlias = str | os.PathLike[str] | Sequence[str]
"""The path of a chain file, or the argv of a program."""
RequestHandler: TypeAlias = Callable[[dict[str, Any]], Any]
"""Takes the params of a request; returns the result, or a coroutine of it."""


class AgentConnection(Protocol):
    """The client's end of a JSON-RPC connection to a running chain."""

    handlers: dict[str, RequestHandler]
    fallback: Any
    """`FallbackHandlers` of messages without a handler."""
    unread: Callable[[], int]
    """Returns the bytes that were received and not yet handled; too many pause the reading."""

    async def request(
        self, method: str, params: Any = None, *, answered: Callable[[Any], None] | None = None
    ) -> Any: ...

    def notify(self, method: str, params: Any = None) -> None: ...

    def made_room(self) -> None:
        """Signal that `unread()` has decreased."""


class SecondAgentHost(RelayHost, Protocol):
    """Interface of the runtime for second agents."""

    def release_lane(self) -> None: ...

    def tap(
        self, source: Literal["client", "agent"], method: str, tap: NotificationTap
    ) -> Callable[[], None]: ...

    def open_agent_chain(
        self, source: AgentSource | None, *, name: str | None, env: Mapping[str, str]
    ) -> AbstractAsyncContextManager[tuple[str, AgentConnection]]:
        """Run a chain for the duration of the block; yields the agent's name and a connection.

        Without a source, the chain is another process of the agent of this one.
        """

    def handler_failed(self, exc: BaseException, **fields: str) -> None:
        """Log an exception of a handler that the lanes do not call. `fields` name the handler."""
