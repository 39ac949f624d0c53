"""One prompt turn of a second agent: the prompt, its updates in order, and then its end."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import trio

from conductor.acp.turns import SessionTurns
from conductor.errors import ConnectionClosed, RemoteProtocolError, RequestError
from conductor.proxy.conversion import encode
from conductor.proxy.prompt_turn import PromptTurn, TurnCollector
from conductor.proxy.second_agent_host import AgentConnection

__all__ = ["SecondAgentTurn", "UpdateCallback"]

UpdateCallback: TypeAlias = Callable[[dict[str, Any]], Awaitable[None] | None]
"""Called with each update of a turn, the `update` member of `session/update`."""


@attrs.define(eq=False)
class SecondAgentTurn:
    """A running turn. `take` gets its updates as they arrive, `deliver` passes them on."""

    agent: str
    """Name of the agent, for errors."""
    session_id: str
    unread: int = attrs.field(default=0, init=False)
    """Bytes of the updates that wait to be delivered."""
    _connection: AgentConnection
    _turns: SessionTurns[Any]
    """Those of the agent's session."""
    _collector: TurnCollector = attrs.field(
        default=attrs.Factory(
            lambda self: TurnCollector(self.session_id, self._turns), takes_self=True
        ),
        init=False,
    )
    _updates: deque[tuple[dict[str, Any], int]] = attrs.field(factory=deque, init=False)
    """With their sizes in bytes."""
    _result: dict[str, Any] | None = attrs.field(default=None, init=False)
    _error: Exception | None = attrs.field(default=None, init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def has_ended(self) -> bool:
        return self._error is not None or self._collector.ended.is_set()

    @property
    def outcome(self) -> PromptTurn:
        """The turn, when it has ended. Raises the agent's error, or why there is no answer."""
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return PromptTurn(self._collector.stop_reason, self._collector.text, self._result)

    async def prompt(self, blocks: Sequence[Any]) -> None:
        """Send the prompt and wait for the answer, which need not be the end of the turn."""
        try:
            result = await self._connection.request(
                "session/prompt", {"sessionId": self.session_id, "prompt": blocks}
            )
            if not isinstance(result, dict):
                raise RemoteProtocolError(
                    self.agent, "its result of session/prompt is not an object"
                )
            self._result = result
            self._collector.answered(result)
        except (RequestError, ConnectionClosed, RemoteProtocolError) as exc:
            self._error = exc
            self._collector.answered(None)
        self._changed.set()

    def take(self, params: Mapping[str, Any]) -> None:
        """Take the params of a `session/update` of the session."""
        raw = encode(params)
        self._collector.take(raw)
        update = params.get("update")
        if isinstance(update, dict):
            size = len(raw or b"")
            self._updates.append((update, size))
            self.unread += size
            self._changed.set()

    async def deliver(self, on_update: UpdateCallback | None) -> None:
        """Call `on_update` with the updates of the turn, until it has ended."""
        while True:
            while self._updates:
                update, size = self._updates.popleft()
                self.unread -= size
                self._connection.made_room()
                if on_update is not None:
                    waiting = on_update(update)
                    if inspect.isawaitable(waiting):
                        await waiting
            if self.has_ended:
                return
            self._changed = trio.Event()
            await self._changed.wait()
