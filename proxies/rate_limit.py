"""`rate_limit`: limits prompts per time, and concurrent turns.

For API keys with a quota, and against programs that prompt in a loop. Prompts over the limit wait,
in order of arrival, or are refused.

Options:
    prompts    maximum prompts in any period of `per`
    per        length of the period; default 1m
    at_once    maximum concurrent turns, in all sessions; default unlimited
    when_full  wait (default) or refuse
    longest    a prompt that would wait longer for the rate is refused; default 10m

A waiting prompt can be cancelled. In protocol version 2 a turn goes on after the response to its
prompt; `at_once` counts it until the session is idle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal

import attrs
import trio
from attrs.validators import ge, gt, optional

from conductor.proxy import (
    Forward,
    Prompt,
    Proxy,
    Session,
    TurnEnd,
    on_prompt,
    on_session_end,
    on_turn_end,
    per_session,
)

__all__ = ["RateLimit"]

_UNLIMITED = 1_000_000


@attrs.define(eq=False)
class _CountedTurn:
    """A prompt that the agent has."""

    accepted: bool = False
    """Whether it was answered (version 2): it ends with the turn."""


@attrs.define
class RateLimit(Proxy):
    """Limit prompts per time, and concurrent turns."""

    prompts: int | None = attrs.field(default=None, validator=optional(gt(0)))
    per: timedelta = attrs.field(default=timedelta(minutes=1), validator=gt(timedelta()))
    at_once: int | None = attrs.field(default=None, validator=optional(ge(1)))
    when_full: Literal["wait", "refuse"] = "wait"
    longest: timedelta = attrs.field(default=timedelta(minutes=10), validator=ge(timedelta()))
    _starts: deque[float] = attrs.field(init=False)
    """Start times of the last prompts."""
    _waiting: int = attrs.field(default=0, init=False)
    _turns: trio.Semaphore = attrs.field(init=False)
    _queue: trio.StrictFIFOLock = attrs.field(factory=trio.StrictFIFOLock, init=False)

    running = per_session(list[_CountedTurn])

    def __attrs_post_init__(self) -> None:
        if self.prompts is None and self.at_once is None:
            raise ValueError("there is no limit: give `prompts` or `at_once`")
        self._starts = deque(maxlen=self.prompts or 0)
        self._turns = trio.Semaphore(self.at_once or _UNLIMITED)

    @on_prompt
    async def prompt(self, session: Session, prompt: Prompt, forward: Forward) -> Any:
        wait = self._expected_start() - trio.current_time()
        can_start = wait <= 0 and not self._waiting and self._try_acquire_turn()
        if not can_start and (self.when_full == "refuse" or wait > self.longest.total_seconds()):
            text = "Refused: there were too many prompts. Try again later."
            return await prompt.answer(text, stop_reason="refusal")
        if can_start:
            self._starts.append(trio.current_time())
        else:
            if wait >= 1:
                await session.notice(f"Waiting for {wait:.0f} s", "there were too many prompts")
            await prompt.wait(self._wait_for_start)
        turn, running = _CountedTurn(), self.running[session.id]
        running.append(turn)
        try:
            result = await forward()
            # In version 2 a turn goes on after the response, unless its end was reported before.
            is_turn = session.protocol_version > 1 and not prompt.answered_by_proxy
            turn.accepted = is_turn and session.is_running
            return result
        finally:
            if not turn.accepted:
                self._release(running, [turn])

    @on_turn_end
    async def turn_ended(self, session: Session, end: TurnEnd) -> None:
        """In version 2 the end of all prompts that were accepted: a turn may have several."""
        running = self.running[session.id]
        self._release(running, [turn for turn in running if turn.accepted])

    @on_session_end
    async def session_ended(self, session: Session) -> None:
        running = self.running[session.id]
        self._release(running, list(running))

    # ----------------------------------------------------------------------------------------------

    def _expected_start(self) -> float:
        """When a prompt may start that arrives now, after those that wait; turns not counted."""
        starts, now = list(self._starts), trio.current_time()
        for _ in range(self._waiting + 1):
            starts.append(max(now, self._earliest(starts)))
        return starts[-1]

    def _earliest(self, starts: Sequence[float]) -> float:
        """The earliest time of the next start under the rate limit."""
        if self.prompts is None or len(starts) < self.prompts:
            return trio.current_time()
        return starts[-self.prompts] + self.per.total_seconds()

    def _try_acquire_turn(self) -> bool:
        try:
            self._turns.acquire_nowait()
        except trio.WouldBlock:
            return False
        return True

    async def _wait_for_start(self) -> None:
        """Wait in the queue for a turn, and then until the rate limit allows a start."""
        self._waiting += 1
        try:
            async with self._queue:
                await self._turns.acquire()
                try:
                    await trio.sleep_until(self._earliest(self._starts))
                except trio.Cancelled:
                    self._turns.release()
                    raise
                self._starts.append(trio.current_time())
        finally:
            self._waiting -= 1

    def _release(self, running: list[_CountedTurn], turns: list[_CountedTurn]) -> None:
        for turn in turns:
            if turn in running:
                running.remove(turn)
                self._turns.release()
