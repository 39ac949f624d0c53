"""A prompt turn as the client sees it: typed updates in order, then the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import trio

from conductor.acp.turns import Ended, SessionTurns
from conductor.errors import RemoteProtocolError, describe
from conductor.log import get_logger
from conductor.proxy.conversion import encode
from conductor.schema.convert import SchemaError, structure

if TYPE_CHECKING:
    from conductor.schema import v1, v2

    Initialized: TypeAlias = v1.InitializeResponse | v2.InitializeResponse
    SessionUpdate: TypeAlias = v1.SessionUpdate | v2.SessionUpdate
    Usage: TypeAlias = v1.Usage | v2.Usage

__all__ = ["TurnCore", "TurnResult"]

log: Final = get_logger(component="client")


@attrs.frozen
class TurnResult:
    """The end of a prompt turn."""

    stop_reason: str
    """The protocol's value: `end_turn`, `max_tokens`, `refusal`, `cancelled` and so on."""
    text: str
    """The text of the agent's message chunks, without its thoughts."""
    usage: Usage | None = None
    """The tokens of the turn, if the agent reports them: a type of `conductor.schema`."""


@attrs.define(eq=False)
class TurnCore:
    """A running turn. Its methods are called in the chain's trio run."""

    types: Any
    """`conductor.schema.v1` or `v2`."""
    turns: SessionTurns[Any]
    """Those of the session."""
    size: int = attrs.field(default=0, init=False)
    """Bytes of the updates that are not yet taken."""
    result: TurnResult | None = attrs.field(default=None, init=False)
    error: Exception | None = attrs.field(default=None, init=False)
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    _updates: list[Any] = attrs.field(factory=list, init=False)
    _text: list[str] = attrs.field(factory=list, init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.turns.prompt_sent(self, trio.current_time())

    async def updates(self) -> list[SessionUpdate]:
        """Wait for updates and return all that arrived; an empty list at the end of the turn."""
        while not self._updates and not self.ended.is_set():
            if self._changed.is_set():  # not another one while somebody waits
                self._changed = trio.Event()
            await self._changed.wait()
        taken, self._updates, self.size = self._updates, [], 0
        return taken

    def on_update(self, params: dict[str, Any]) -> None:
        size = len(encode(params) or b"")
        try:
            update = structure(params["update"], self.types.SessionUpdate)
        except (KeyError, SchemaError) as exc:
            log.warning("update left out: it does not fit the schema", error=describe(exc))
            return
        ended = self.turns.take(params["update"], trio.current_time())
        self._updates.append(update)
        self.size += size
        types = self.types
        if isinstance(update, types.AgentMessageChunk) and isinstance(
            update.content, types.TextContent
        ):
            self._text.append(update.content.text)
        self._end_with(ended)
        self._changed.set()

    def on_response(self, response: dict[str, Any]) -> None:
        """Version 1 ends a turn with the response; version 2 with an update after it or before."""
        reason = response.get("stopReason")
        if reason is None and self.types.__name__.endswith("v1"):
            self.fail(RemoteProtocolError("the agent", "the turn ended without a `stopReason`"))
            self.end()
            return
        self._end_with(
            self.turns.prompt_answered(
                self, trio.current_time(), accepted=True, stop_reason=reason, report=response
            )
        )

    def fail(self, error: Exception) -> None:
        """Keep the first error; it is raised at the end of the turn."""
        self.error = self.error or error

    def end(self) -> None:
        """End the turn: nothing more arrives for it."""
        self.turns.prompt_answered(self, trio.current_time(), accepted=False)
        self.ended.set()
        self._changed.set()

    def _end_with(self, ended: Ended[Any] | None) -> None:
        if ended is None or self not in ended.prompts:
            return
        usage = ended.report.get("usage")
        try:
            usage = None if usage is None else structure(usage, self.types.Usage)
        except SchemaError:
            usage = None
        self.result = TurnResult(str(ended.stop_reason or "end_turn"), "".join(self._text), usage)
        self.end()
