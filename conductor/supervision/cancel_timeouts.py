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

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.supervision.deadline_timer import NEVER

__all__ = ["CancelOverdue", "CancelTimeouts", "RequestOverdue", "TurnOverdue"]

_IDLE: Final = "idle"


class TurnOverdue(msgspec.Struct, frozen=True):
    """A turn goes on although `session/cancel` was sent."""

    session: str
    prompts: tuple[InFlightRequest, ...]
    """The requests of the turn that are not answered."""
    running: bool
    """Version 2: whether the agent's last word is that it works."""


class RequestOverdue(msgspec.Struct, frozen=True):
    """A request is not answered although `$/cancel_request` was sent for it."""

    call: InFlightRequest
    session: str | None
    """Of a prompt."""


CancelOverdue: TypeAlias = TurnOverdue | RequestOverdue


class CancelTimeouts:
    """Of one component. All times are in seconds, of the caller's clock."""

    __slots__ = (
        "_cancel_deadlines",
        "_cancel_request_deadlines",
        "_prompts",
        "_running",
        "timeout",
    )

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._prompts: dict[InFlightRequest, str | None] = {}
        self._running: set[str] = set()
        self._cancel_deadlines: dict[InFlightRequest | str, float] = {}
        """Deadlines: of open prompts, and by session of turns of version 2."""
        self._cancel_request_deadlines: dict[InFlightRequest, float] = {}

    # Each returns the next time at which something may be due because of it.

    def prompt_sent(self, call: InFlightRequest, session: str | None) -> None:
        """The agent gets a prompt."""
        self._prompts[call] = session

    def cancel_sent(self, session: str, now: float) -> float:
        """The agent gets `session/cancel`."""
        open: list[InFlightRequest | str] = [
            call for call, name in self._prompts.items() if name == session
        ]
        if session in self._running:
            open.append(session)
        deadline = now + self.timeout
        return min(
            (self._cancel_deadlines.setdefault(key, deadline) for key in open), default=NEVER
        )

    def cancel_request_sent(self, call: InFlightRequest, now: float) -> float:
        """The agent gets `$/cancel_request` for a request that is open."""
        return self._cancel_request_deadlines.setdefault(call, now + self.timeout)

    def response_received(self, call: InFlightRequest) -> None:
        """The agent answered a request, or it was answered for it."""
        self._prompts.pop(call, None)
        self._cancel_deadlines.pop(call, None)
        self._cancel_request_deadlines.pop(call, None)

    def state_reported(self, session: str, state: str) -> None:
        """The agent reported its state (version 2), or it was reported for it."""
        if state == _IDLE:
            self._running.discard(session)
            self._cancel_deadlines.pop(session, None)
        else:
            self._running.add(session)

    @property
    def running(self) -> frozenset[str]:
        """The sessions in which the agent says that it works (version 2)."""
        return frozenset(self._running)

    def holds_up_turn(self, session: str) -> bool:
        """Whether a turn of this session was cancelled, and is not over."""
        return any(self._session_of(key) == session for key in self._cancel_deadlines)

    def holds_up_request(self, method: str) -> bool:
        """Whether a request of this method was withdrawn, and is not answered."""
        return any(call.method == method for call in self._cancel_request_deadlines)

    def next_deadline(self) -> float:
        """When `overdue` may have something to say; infinite if never."""
        return min(
            (*self._cancel_deadlines.values(), *self._cancel_request_deadlines.values()),
            default=NEVER,
        )

    def overdue(self, now: float) -> list[CancelOverdue]:
        """What is overdue. It is due again later, unless it ends."""
        again = now + self.timeout
        turns: dict[str, list[InFlightRequest]] = {}
        for key, deadline in self._cancel_deadlines.items():
            if deadline <= now:
                session = self._session_of(key)
                assert session is not None
                prompts = turns.setdefault(session, [])
                if isinstance(key, InFlightRequest):
                    prompts.append(key)
                self._cancel_deadlines[key] = again
        found: list[CancelOverdue] = [
            TurnOverdue(session, tuple(prompts), session in self._running)
            for session, prompts in turns.items()
        ]
        for call, deadline in self._cancel_request_deadlines.items():
            if deadline <= now:
                found.append(RequestOverdue(call, self._prompts.get(call)))
                self._cancel_request_deadlines[call] = again
        return found

    def _session_of(self, key: InFlightRequest | str) -> str | None:
        return key if isinstance(key, str) else self._prompts[key]

    def forget(self) -> None:
        """The agent is gone."""
        self._prompts.clear()
        self._running.clear()
        self._cancel_deadlines.clear()
        self._cancel_request_deadlines.clear()
