"""Deadlines of cancelled turns and requests of one component.

In: prompts, `session/cancel` and `$/cancel_request` sent to a component, its responses, and in
version 2 the states that it reports. Out: turns and requests that were cancelled `timeout` seconds
ago and are still open, each again after every further `timeout` until it ends.

A turn lasts as long as its `session/prompt` is open; in version 2, where a prompt is answered when
it is inserted, until the agent reports `idle`. A prompt sent after the cancellation belongs to
another turn.
"""

from __future__ import annotations

from time import monotonic
from typing import Final, TypeAlias

import msgspec

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.supervision.deadline_timer import NEVER

__all__ = ["CancelOverdue", "CancelTimeouts", "RequestOverdue", "TurnOverdue"]

_IDLE: Final = "idle"


class TurnOverdue(msgspec.Struct, frozen=True):
    """A turn that continues after `session/cancel`."""

    session: str
    prompts: tuple[InFlightRequest, ...]
    """The unanswered prompts of the turn."""
    running: bool
    """Version 2: whether the last reported state is not `idle`."""


class RequestOverdue(msgspec.Struct, frozen=True):
    """A request that is not answered after its `$/cancel_request`."""

    call: InFlightRequest
    session: str | None
    """The session of a prompt; None for other requests."""


CancelOverdue: TypeAlias = TurnOverdue | RequestOverdue


class CancelTimeouts:
    """Deadlines of one component, in seconds of the caller's clock."""

    __slots__ = (
        "_accepted",
        "_began",
        "_cancelled_turns",
        "_ended",
        "_prompts",
        "_running",
        "cancelled_requests",
        "timeout",
    )

    def __init__(self, timeout: float) -> None:
        self.timeout: float = timeout
        self._prompts: dict[InFlightRequest, str | None] = {}
        self._running: set[str] = set()
        self._accepted: set[str] = set()
        """Version 2: sessions with an answered prompt, and no end of its turn reported since."""
        self._ended: set[InFlightRequest] = set()
        """Version 2: unanswered prompts with a turn that was reported as ended."""
        self._began: dict[InFlightRequest | str, float] = {}
        """Start of each turn (monotonic clock), by prompt, or by session in version 2."""
        self._cancelled_turns: dict[InFlightRequest | str, float] = {}
        """Deadlines of turns after `session/cancel`: by open prompt, by session in version 2."""
        self.cancelled_requests: dict[InFlightRequest, float] = {}
        """Deadlines of requests after `$/cancel_request`."""

    # Those that return a float return the deadline that they set, or `NEVER`.

    def prompt_sent(self, call: InFlightRequest, session: str | None) -> None:
        """Record a prompt sent to the component."""
        self._prompts[call] = session
        self._began[call] = monotonic()

    def cancel_sent(self, session: str, now: float) -> float:
        """Record a `session/cancel` sent to the component."""
        open: list[InFlightRequest | str] = [
            call for call, name in self._prompts.items() if name == session
        ]
        if session in self._running:
            open.append(session)
        deadline = now + self.timeout
        return min((self._cancelled_turns.setdefault(key, deadline) for key in open), default=NEVER)

    def cancel_request_sent(self, call: InFlightRequest, now: float) -> float:
        """Record a `$/cancel_request` sent for an open request."""
        return self.cancelled_requests.setdefault(call, now + self.timeout)

    def response_received(self, call: InFlightRequest) -> None:
        """Record the response to a request, from the component or in its place."""
        self._prompts.pop(call, None)
        self._ended.discard(call)
        self._began.pop(call, None)
        self._cancelled_turns.pop(call, None)
        self.cancelled_requests.pop(call, None)

    def state_reported(self, session: str, state: str) -> None:
        """Record a reported state (version 2), from the agent or in its place."""
        if state == _IDLE:
            if session in self._running:
                self._ended.update(call for call, name in self._prompts.items() if name == session)
            self._running.discard(session)
            self._accepted.discard(session)
            self._began.pop(session, None)
            self._cancelled_turns.pop(session, None)
        else:
            self._running.add(session)
            self._began.setdefault(session, monotonic())

    def prompt_accepted(self, call: InFlightRequest) -> None:
        """Record a prompt of version 2 that is answered without an error, which may be before or
        after its turn."""
        session = self._prompts.get(call)
        if session is not None and call not in self._ended:
            self._accepted.add(session)

    @property
    def unfinished(self) -> frozenset[str]:
        """Sessions with a turn that no open request stands for (version 2): the last reported state
        is not `idle`, or a prompt was accepted and no state reported since."""
        return frozenset(self._running | self._accepted)

    def turns(self) -> list[tuple[str | None, float]]:
        """Session of each running turn, and seconds since it began. May be called by any thread."""
        now = monotonic()
        found: dict[str | None, float] = {}
        for key, began in list(self._began.items()):
            session = key if isinstance(key, str) else key.session
            found[session] = max(found.get(session, 0.0), now - began)
        return list(found.items())

    def blocks_turn(self, session: str) -> bool:
        """Whether a turn of this session was cancelled and continues."""
        return any(self._session_of(key) == session for key in self._cancelled_turns)

    def is_all_cancelled(self, session: str) -> bool:
        """Whether every turn of this session that continues was cancelled, and one does."""
        prompts = (call for call, name in self._prompts.items() if name == session)
        return self.blocks_turn(session) and all(call in self._cancelled_turns for call in prompts)

    def is_only_prompt(self, call: InFlightRequest) -> bool:
        """Whether the request is the only unanswered prompt of its session."""
        session = self._prompts.get(call)
        return session is not None and list(self._prompts.values()).count(session) == 1

    def blocks_request(self, method: str | None) -> bool:
        """Whether a request of this method (`None`: any) was cancelled and is not answered."""
        return any(method in (None, call.method) for call in self.cancelled_requests)

    def next_deadline(self) -> float:
        """The earliest deadline; infinite if there is none."""
        return min(
            (*self._cancelled_turns.values(), *self.cancelled_requests.values()),
            default=NEVER,
        )

    def overdue(self, now: float) -> list[CancelOverdue]:
        """Overdue turns and requests; each gets a new deadline, `timeout` seconds later."""
        again = now + self.timeout
        turns: dict[str, list[InFlightRequest]] = {}
        for key, deadline in self._cancelled_turns.items():
            if deadline <= now:
                session = self._session_of(key)
                assert session is not None
                prompts = turns.setdefault(session, [])
                if isinstance(key, InFlightRequest):
                    prompts.append(key)
                self._cancelled_turns[key] = again
        found: list[CancelOverdue] = [
            TurnOverdue(session, tuple(prompts), session in self._running)
            for session, prompts in turns.items()
        ]
        for call, deadline in self.cancelled_requests.items():
            if deadline <= now:
                found.append(RequestOverdue(call, self._prompts.get(call)))
                self.cancelled_requests[call] = again
        return found

    def _session_of(self, key: InFlightRequest | str) -> str | None:
        return key if isinstance(key, str) else self._prompts[key]

    def forget(self) -> None:
        """Drop everything: the process of the component ended."""
        self._prompts.clear()
        self._running.clear()
        self._accepted.clear()
        self._ended.clear()
        self._cancelled_turns.clear()
        self.cancelled_requests.clear()
