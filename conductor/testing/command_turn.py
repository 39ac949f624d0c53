"""Session and prompt turn of the test agent, as its commands see them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import attrs
import trio

from conductor.proxy.peers import Peer
from conductor.testing import updates
from conductor.testing.mcp_client import McpServer

__all__ = ["CommandSession", "CommandTurn", "StopTurn"]


class StopTurn(Exception):
    """Ends the turn with a stop reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@attrs.define(eq=False)
class CommandSession:
    """State of one session of the test agent."""

    id: str
    cwd: str
    mode: str = "ask"
    turn: trio.CancelScope | None = None
    turns: int = 0
    history: list[dict[str, Any]] = attrs.field(factory=list)
    """The updates that `session/load` replays."""
    servers: dict[str, McpServer] = attrs.field(factory=dict)
    broken: dict[str, str] = attrs.field(factory=dict)
    """MCP servers that did not start: reason by name."""
    closed: trio.Event = attrs.field(factory=trio.Event)

    def remember(self, kind: str, text: str) -> None:
        self.history.append(updates.chunk(text, kind))

    def close(self) -> None:
        self.closed.set()
        self.servers.clear()
        self.broken.clear()

    def reopen(self) -> None:
        """Stop the servers of an earlier set-up of this session."""
        self.close()
        self.closed = trio.Event()


@attrs.define(eq=False)
class CommandTurn:
    """One prompt turn, with helpers to send its updates in both protocol versions."""

    client: Peer
    session: CommandSession
    version: updates.Version
    prompt: Sequence[Mapping[str, Any]]
    text: str
    """The text of the prompt that has the commands."""
    alone: bool
    crash: Callable[[], None]
    wait_room: Callable[[], Awaitable[None]]
    calls: int = 0

    @property
    def prompt_id(self) -> str:
        return f"message-{2 * self.session.turns - 1}"

    async def update(self, update: Mapping[str, Any]) -> None:
        await self.client.notify("session/update", updates.params(self.session.id, update))

    async def chunk(self, text: str, kind: str = "agent_message_chunk") -> None:
        members = {} if self.version == 1 else {"messageId": f"message-{2 * self.session.turns}"}
        await self.update(updates.chunk(text, kind, **members))

    async def say(self, text: str) -> None:
        """Send a message chunk, and record it for `session/load`."""
        self.session.remember("agent_message_chunk", text)
        await self.chunk(text)

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        return await self.client.request(method, {"sessionId": self.session.id, **params})

    async def begin_tool(
        self, title: str, kind: str = "other", more: Mapping[str, Any] | None = None
    ) -> str:
        """Announce a tool call, with further members of the update; returns its id."""
        self.calls += 1
        id = f"call-{self.session.turns}-{self.calls}"
        members = {"kind": kind, **(more or {})}
        await self.update(updates.tool_call(id, title, version=self.version, **members))
        return id

    async def tool(self, id: str, status: str, text: str | None = None) -> None:
        await self.update(updates.tool_call_update(id, status, text))

    def path(self, path: str) -> str:
        return os.path.join(self.session.cwd, path)
