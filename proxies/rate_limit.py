"""`rate_limit`: limits prompts per time, and concurrent turns.

For API keys with a quota, and against programs that prompt in a loop. Prompts over the limit wait,
in order of arrival, or are refused.

Options:
    prompts   maximum prompts in any period of `per`
    per       length of the period; default 1m
    at_once   maximum concurrent turns, in all sessions; default unlimited
    when_full wait (default) or refuse
    longest   a prompt that would wait longer for the rate is refused; default 10m

A waiting prompt can be cancelled. In protocol version 2 a turn goes on after the response to its
prompt; `at_once` counts it until the session is idle.
"""

from __future__ import annotations

from collections import deque
from datetime import timedelta
from typing import Any, Literal

import attrs
import trio
from attrs.validators import ge, gt, optional

from conductor.proxy import Forward, Proxy, RequestCancelled, on, per_session
from proxies._messages import opened_session, update_of_kind
from proxies._slash_commands import AnnouncedCommands, SlashCommands, answer, is_handled, say

__all__ = ["RateLimit"]


@attrs.define
class _Session:
    waiting: list[trio.CancelScope] = attrs.field(factory=list)
    running: int = 0
    """Number of running turns of this session."""
    announced: AnnouncedCommands = attrs.field(factory=AnnouncedCommands)


@attrs.define
class RateLimit(Proxy):
    """Limit prompts per time, and concurrent turns."""

    prompts: int | None = attrs.field(default=None, validator=optional(gt(0)))
    per: timedelta = attrs.field(default=timedelta(minutes=1), validator=gt(timedelta()))
    at_once: int | None = attrs.field(default=None, validator=optional(ge(1)))
    when_full: Literal["wait", "refuse"] = "wait"
    longest: timedelta = attrs.field(default=timedelta(minutes=10), validator=ge(timedelta()))
    _version: int = attrs.field(default=1, init=False)
    _starts: deque[float] = attrs.field(init=False)
    """Start times of the last prompts; those of waiting prompts are in the future."""
    _turns: trio.Semaphore | None = attrs.field(default=None, init=False)
    _queue: trio.StrictFIFOLock = attrs.field(factory=trio.StrictFIFOLock, init=False)
    _commands: SlashCommands = attrs.field(factory=SlashCommands, init=False)

    sessions = per_session(_Session)

    def __attrs_post_init__(self) -> None:
        if self.prompts is None and self.at_once is None:
            raise ValueError("there is no limit: give `prompts` or `at_once`")
        self._starts = deque(maxlen=self.prompts or 0)
        if self.at_once is not None:
            self._turns = trio.Semaphore(self.at_once, max_value=self.at_once)

    @on("initialize")
    async def initialize(self, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        self._version = result.get("protocolVersion", 1)
        return self._commands.initialized(result)

    @on("session/new")
    @on("session/load")
    @on("session/resume")
    @on("session/fork")
    async def open_session(self, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        if self._version > 1 and result is not None:
            self.sessions[opened_session(params, result)].announced.read(result)
        return result

    @on("session/prompt")
    async def prompt(self, params: dict[str, Any], forward: Forward) -> Any:
        id = params["sessionId"]
        if self._commands.calls_other(params, self.sessions[id].announced):
            return await forward()
        start = self._next_start()
        wait = start - trio.current_time()
        can_start = wait <= 0 and not self._queue.locked() and self._try_acquire_turn()
        if not can_start and (self.when_full == "refuse" or wait > self.longest.total_seconds()):
            text = "Refused: there were too many prompts. Try again later."
            return await answer(
                self.client, params, text, version=self._version, stop_reason="refusal"
            )
        self._starts.append(max(start, trio.current_time()))
        if not can_start and not await self._wait(id, start):
            if self._version == 1:
                return {"stopReason": "cancelled"}
            raise RequestCancelled
        return await self._run(id, forward)

    @on("session/cancel")
    async def cancel(self, params: dict[str, Any], forward: Forward) -> None:
        for scope in self.sessions[params["sessionId"]].waiting:
            scope.cancel()
        await forward()

    @on("session/update")
    async def update(self, raw: bytes, forward: Forward) -> None:
        await forward()
        params = update_of_kind(raw, "state_update", "available_commands_update")
        if params is None:
            return
        session, update = self.sessions[params["sessionId"]], params["update"]
        if update["sessionUpdate"] == "available_commands_update":
            session.announced.read(update)
        elif update.get("state") == "idle" and not is_handled(update):
            self._release_turn(session)

    @on("session/close")
    async def close(self, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        self._release_turn(self.sessions[params["sessionId"]])
        return result

    # ----------------------------------------------------------------------------------------------

    def _next_start(self) -> float:
        """Return the earliest start time of the next prompt under the rate limit."""
        if self.prompts is None or len(self._starts) < self.prompts:
            return trio.current_time()
        return self._starts[0] + self.per.total_seconds()

    def _try_acquire_turn(self) -> bool:
        if self._turns is None:
            return True
        try:
            self._turns.acquire_nowait()
        except trio.WouldBlock:
            return False
        return True

    async def _wait(self, id: str, start: float) -> bool:
        """Wait in the queue, until `start` and for a turn; return `False` if cancelled."""
        session, seconds = self.sessions[id], start - trio.current_time()
        if seconds >= 1:
            text = f"Waiting for {seconds:.0f} s: there were too many prompts.\n"
            await say(self.client, id, text, version=self._version)
        with trio.CancelScope() as scope:
            session.waiting.append(scope)
            try:
                self.release_lane()
                async with self._queue:
                    await trio.sleep_until(start)
                    if self._turns is not None:
                        await self._turns.acquire()
            finally:
                session.waiting.remove(scope)
        return not scope.cancelled_caught

    async def _run(self, id: str, forward: Forward) -> Any:
        """Forward the prompt, and release its turn when the turn ends."""
        session = self.sessions[id]
        session.running += 1
        accepted = False
        try:
            result = await forward()
            accepted = self._version > 1
            return result
        finally:
            if not accepted:
                self._release_turn(session)

    def _release_turn(self, session: _Session) -> None:
        if session.running:
            session.running -= 1
            if self._turns is not None:
                self._turns.release()
