"""`queue`: prompts that arrive while a turn runs wait for its end, in order.

Many agents refuse a second prompt of a session, end the running turn, or mix both up. `/queue`
shows what waits, each prompt with its number in the session; `/queue drop 2` removes number 2,
`/queue drop all` removes all.

Options:
    when_busy  a prompt during a turn is put into the `queue` (default), is given to the agent at
               once (`steer`), if it accepts that, or is answered with a refusal (`refuse`)
    limit      how many prompts of a session wait; further ones get a refusal; default 10
    cancel     what ends when the user cancels: `all` prompts (default), or the `running` turn

An agent accepts prompts during a turn in protocol version 2, or if it announces `promptQueueing`
(claude and qoder do); for others `steer` queues. A dropped prompt is answered `cancelled`.

Some agents answer a prompt shortly before they are ready for the next one, and refuse that ("Prompt
already in progress"). It is sent again a few times within five seconds, unless the agent has begun
with it.
"""

from __future__ import annotations

import itertools
import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any, Final, Literal

import attrs
import trio
from attrs.validators import ge

from conductor.proxy import (
    Forward,
    Prompt,
    Proxy,
    RequestError,
    Session,
    TurnEnd,
    on_cancel,
    on_prompt,
    on_session_end,
    on_turn_end,
    on_update,
    per_session,
    slash,
)

__all__ = ["Queue"]

_RETRY_DELAYS: Final = (0.1, 0.3, 1.0, 3.0)
"""Seconds between the attempts to send a prompt that the agent is not ready for."""
_OUTPUT: Final = ("agent_message_chunk", "agent_thought_chunk", "tool_call", "plan")
_BUSY: Final = re.compile(
    # kiro, fx, omp: "Prompt already in progress"; vibe: "A turn is already running"; pi: "Agent is
    # already processing", session_busy; opencode: "Session is busy".
    r"\b(prompt|turn|agent|session|request)\b[^.:;\n]{0,60}\b(already|still|currently)"
    r" (being )?(in progress|in flight|running|process|active)"
    r"|\b(already|currently) (has |have )?(processing|running|an? active) (an?|another)?"
    r" ?(prompt|turn|request)\b"
    r"|\b(session|agent)[ _](\S+ )?(is )?(currently )?busy\b|agentbusyerror"
)
"""Texts, in lower case, with which agents refuse a prompt while another one runs."""
_MAX_CHARS: Final = 2000
"""Longer errors are cut: they are not about this."""


@attrs.define(eq=False)
class _QueuedPrompt:
    """A prompt that waits, or that the agent has."""

    words: str
    number: int = 0
    """Number by which the user refers to it while it waits."""
    decided: trio.Event = attrs.field(factory=trio.Event)
    """Set when it stops waiting."""
    dropped: bool = False
    has_begun: bool = False
    """Whether there was output of the agent since it has the prompt."""
    is_refused: bool = False
    """Whether it waits to be sent again."""
    is_steered: bool = False
    """Whether it was sent while another one ran."""
    is_cancelled: bool = False
    """Whether the user has cancelled since the agent has it."""


@attrs.define(eq=False)
class _Turns:
    """The turns of one session."""

    waiting: list[_QueuedPrompt] = attrs.field(factory=list)
    running: set[_QueuedPrompt] = attrs.field(factory=set)
    numbers: Iterator[int] = attrs.field(factory=lambda: itertools.count(1))

    def start_next(self) -> None:
        """Start the first turn that waits, if none runs."""
        if self.waiting and not self.running:
            turn = self.waiting.pop(0)
            self.running.add(turn)
            turn.decided.set()

    def drop(self, turns: list[_QueuedPrompt]) -> None:
        for turn in turns:
            self.waiting.remove(turn)
            turn.dropped = True
            turn.decided.set()


@attrs.define
class Queue(Proxy):
    """Let prompts wait while a turn of their session runs."""

    when_busy: Literal["queue", "steer", "refuse"] = "queue"
    limit: int = attrs.field(default=10, validator=ge(1))
    cancel: Literal["all", "running"] = "all"

    turns = per_session(_Turns)

    @on_prompt
    async def prompt(self, session: Session, prompt: Prompt, forward: Forward) -> Any:
        turns = self.turns[session.id]
        turn = _QueuedPrompt(_first_words(prompt.text))
        is_free = not turns.running and not session.is_running
        if is_free or (self.when_busy == "steer" and self._accepts_prompts_during_a_turn()):
            turn.is_steered = not is_free
            turns.running.add(turn)
        elif self.when_busy == "refuse":
            return await prompt.answer("Refused: a turn is running.", stop_reason="refusal")
        elif len(turns.waiting) >= self.limit:
            text = f"Refused: {len(turns.waiting)} prompts wait already (/queue)."
            return await prompt.answer(text, stop_reason="refusal")
        else:
            turn.number = next(turns.numbers)
            turns.waiting.append(turn)
        try:
            if turn in turns.waiting:
                await self._wait(session, turn)
            return prompt.withdraw() if turn.dropped else await self._send(turn, prompt, forward)
        finally:
            if turn in turns.waiting:
                turns.waiting.remove(turn)
            elif self.protocol_version == 1 or not session.is_running:
                turns.running.discard(turn)  # in version 2 a turn goes on after the response
                turns.start_next()

    @on_turn_end
    async def turn_ended(self, session: Session, end: TurnEnd) -> None:
        if self.protocol_version > 1:
            turns = self.turns[session.id]
            turns.running = {turn for turn in turns.running if turn.is_refused}
            turns.start_next()

    @on_update(*_OUTPUT)
    async def output(self, session: Session, update: dict[str, Any], forward: Forward) -> None:
        for turn in self.turns[session.user_session.id].running:
            turn.has_begun = True
        await forward()

    @on_cancel
    async def cancelled(self, session: Session) -> None:
        for turn in self.turns[session.id].running:
            turn.is_cancelled = True
        if self.cancel == "all":
            self._drop_all(session)

    @on_session_end
    async def ended(self, session: Session) -> None:
        self._drop_all(session)

    @slash("queue", "Show or drop the prompts that wait: [drop NUMBER|all]")
    async def show(self, session: Session, arguments: str) -> str:
        turns = self.turns[session.id]
        match arguments.split():
            case []:
                lines = [f"{turn.number}. {turn.words}" for turn in turns.waiting]
                return "\n".join(lines) or "No prompt waits."
            case ["drop", "all"]:
                dropped = list(turns.waiting)
            case ["drop", number] if number.isdecimal():
                dropped = [turn for turn in turns.waiting if turn.number == int(number)]
                if not dropped:
                    return f"No prompt {number} waits."
            case _:
                return "Write /queue, /queue drop NUMBER or drop all."
        turns.drop(dropped)
        return f"Dropped {len(dropped)} prompt{'s' if len(dropped) != 1 else ''}."

    # ----------------------------------------------------------------------------------------------

    async def _send(self, turn: _QueuedPrompt, prompt: Prompt, forward: Forward) -> Any:
        """Give the prompt to the agent, again if it is not ready."""
        for delay in (*_RETRY_DELAYS, None):
            turn.has_begun = False
            try:
                result = await forward()
                turn.is_refused = False
                return result
            except RequestError as exc:
                if delay is None or turn.has_begun or turn.is_steered or not _is_busy(exc):
                    raise
            turn.is_refused = True
            if turn.is_cancelled:
                break
            await prompt.wait(trio.sleep, delay)
        return prompt.withdraw()

    async def _wait(self, session: Session, turn: _QueuedPrompt) -> None:
        title = f"Prompt {turn.number} waits until the running turn has ended"
        await session.notice(title, "/queue shows what waits")
        self.release_lane()
        await turn.decided.wait()

    def _drop_all(self, session: Session) -> None:
        turns = self.turns[session.id]
        turns.drop(list(turns.waiting))

    def _accepts_prompts_during_a_turn(self) -> bool:
        vendors = self.agent_capabilities.get("_meta") or {}
        announced = any(
            isinstance(members, dict) and members.get("promptQueueing") is True
            for members in vendors.values()
        )
        return announced or self.protocol_version > 1


def _first_words(text: str) -> str:
    return textwrap.shorten(text[:200], 60, placeholder=" …") or "(no text)"


def _is_busy(error: RequestError) -> bool:
    """Whether an agent has refused a prompt because it still works on another one."""
    data = json.dumps(error.data, default=str)
    return _BUSY.search(f"{error.message[:_MAX_CHARS]}\n{data[:_MAX_CHARS]}".lower()) is not None
