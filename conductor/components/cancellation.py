"""Cancelled turns and requests that a component does not end. Pure.

In: what is sent to a component (prompts, `session/cancel`, `$/cancel_request`), what it answers,
and in version 2 the states that it reports. Out: what has been cancelled for `timeout` seconds and
is still open, each again after every further `timeout` until it is over.

A turn is as long as its `session/prompt` is open; in version 2, where a prompt is answered when it
is inserted, until the agent reports `idle`. A prompt that is sent after the cancellation is another
turn.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from conductor.components.alarm import NEVER
from conductor.connection.calls import Call

__all__ = ["CancelDue", "Cancellations", "TurnOverdue", "WithdrawnOverdue"]

_OVER: Final = "idle"


class TurnOverdue(msgspec.Struct, frozen=True):
    """A turn goes on although `session/cancel` was sent."""

    session: str
    prompts: tuple[Call, ...]
    """The requests of the turn that are not answered."""
    running: bool
    """Version 2: whether the agent's last word is that it works."""


class WithdrawnOverdue(msgspec.Struct, frozen=True):
    """A request is not answered although `$/cancel_request` was sent for it."""

    call: Call
    session: str | None
    """Of a prompt."""


CancelDue: TypeAlias = TurnOverdue | WithdrawnOverdue


class Cancellations:
    """Of one component. All times are in seconds, of the caller's clock."""

    __slots__ = ("_cancelled", "_prompts", "_running", "_withdrawn", "timeout")

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._prompts: dict[Call, str | None] = {}
        self._running: set[str] = set()
        self._cancelled: dict[Call | str, float] = {}
        """Deadlines: of open prompts, and by session of turns of version 2."""
        self._withdrawn: dict[Call, float] = {}

    # Each returns the next time at which something may be due because of it.

    def prompted(self, call: Call, session: str | None) -> None:
        """The agent gets a prompt."""
        self._prompts[call] = session

    def cancelled(self, session: str, now: float) -> float:
        """The agent gets `session/cancel`."""
        open: list[Call | str] = [call for call, name in self._prompts.items() if name == session]
        if session in self._running:
            open.append(session)
        deadline = now + self.timeout
        return min((self._cancelled.setdefault(key, deadline) for key in open), default=NEVER)

    def withdrawn(self, call: Call, now: float) -> float:
        """The agent gets `$/cancel_request` for a request that is open."""
        return self._withdrawn.setdefault(call, now + self.timeout)

    def answered(self, call: Call) -> None:
        """The agent answered a request, or it was answered for it."""
        self._prompts.pop(call, None)
        self._cancelled.pop(call, None)
        self._withdrawn.pop(call, None)

    def reported(self, session: str, state: str) -> None:
        """The agent reported its state (version 2), or it was reported for it."""
        if state == _OVER:
            self._running.discard(session)
            self._cancelled.pop(session, None)
        else:
            self._running.add(session)

    @property
    def running(self) -> frozenset[str]:
        """The sessions in which the agent says that it works (version 2)."""
        return frozenset(self._running)

    def holds_up_turn(self, session: str) -> bool:
        """Whether a turn of this session was cancelled, and is not over."""
        return any(self._session_of(key) == session for key in self._cancelled)

    def holds_up_request(self, method: str) -> bool:
        """Whether a request of this method was withdrawn, and is not answered."""
        return any(call.method == method for call in self._withdrawn)

    def next_deadline(self) -> float:
        """When `due` may have something to say; infinite if never."""
        return min((*self._cancelled.values(), *self._withdrawn.values()), default=NEVER)

    def due(self, now: float) -> list[CancelDue]:
        """What is overdue. It is due again later, unless it ends."""
        again = now + self.timeout
        turns: dict[str, list[Call]] = {}
        for key, deadline in self._cancelled.items():
            if deadline <= now:
                session = self._session_of(key)
                assert session is not None
                prompts = turns.setdefault(session, [])
                if isinstance(key, Call):
                    prompts.append(key)
                self._cancelled[key] = again
        found: list[CancelDue] = [
            TurnOverdue(session, tuple(prompts), session in self._running)
            for session, prompts in turns.items()
        ]
        for call, deadline in self._withdrawn.items():
            if deadline <= now:
                found.append(WithdrawnOverdue(call, self._prompts.get(call)))
                self._withdrawn[call] = again
        return found

    def _session_of(self, key: Call | str) -> str | None:
        return key if isinstance(key, str) else self._prompts[key]

    def forget(self) -> None:
        """The agent is gone."""
        self._prompts.clear()
        self._running.clear()
        self._cancelled.clear()
        self._withdrawn.clear()
