"""Deadlines of cancelled turns and requests of one component.

In: `session/cancel` and `$/cancel_request` sent to a component, and its turns (`acp.turns`). Out:
turns and requests that were cancelled `timeout` seconds ago and are still open, each again after
every further `timeout` until it ends. Nothing is due while it is not known whether a turn runs.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from conductor.acp.turns import SessionTurns, Turns
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.supervision.deadline_timer import NEVER

__all__ = ["CancelOverdue", "CancelTimeouts", "RequestOverdue", "TurnOverdue"]


class TurnOverdue(msgspec.Struct, frozen=True):
    """A turn that continues after `session/cancel`."""

    session: str
    prompts: tuple[InFlightRequest, ...]
    """The unanswered prompts of the turn."""
    running: bool
    """Version 2: whether it was more than unanswered prompts, so that a state has to end it."""


class RequestOverdue(msgspec.Struct, frozen=True):
    """A request that is not answered after its `$/cancel_request`."""

    call: InFlightRequest
    session: str | None
    """The session of a prompt; None for other requests."""


CancelOverdue: TypeAlias = TurnOverdue | RequestOverdue


class CancelTimeouts:
    """Deadlines of one component, in seconds of the caller's clock, which is that of `turns`."""

    __slots__ = ("_due", "cancelled_requests", "timeout", "turns")

    def __init__(self, timeout: float, turns: Turns[InFlightRequest]) -> None:
        self.timeout: float = timeout
        self.turns: Turns[InFlightRequest] = turns
        self._due: dict[str, float] = {}
        """By session; some may have ended."""
        self.cancelled_requests: dict[InFlightRequest, float] = {}
        """Deadlines of requests after `$/cancel_request`."""

    # Those that return a float return the deadline that they set, or `NEVER`.

    def cancel_sent(self, session: str, now: float) -> float:
        """Record a `session/cancel` sent to the component."""
        turns = self.turns.sessions.get(session)
        if turns is None:
            return NEVER
        if not turns.is_cancelled:
            self._due.pop(session, None)  # of a turn that has ended
        turns.cancel(now)
        return self._due.setdefault(session, now + self.timeout) if turns.is_cancelled else NEVER

    def cancel_request_sent(self, call: InFlightRequest, now: float) -> float:
        """Record a `$/cancel_request` sent for an open request."""
        return self.cancelled_requests.setdefault(call, now + self.timeout)

    def response_received(self, call: InFlightRequest) -> None:
        """Record the response to a request, from the component or in its place."""
        self.cancelled_requests.pop(call, None)

    def blocks_request(self, method: str | None) -> bool:
        """Whether a request of this method (`None`: any) was cancelled and is not answered."""
        return any(method in (None, call.method) for call in self.cancelled_requests)

    def next_deadline(self) -> float:
        """The earliest deadline; infinite if there is none."""
        self._due = {name: at for name, at in self._due.items() if self.turns.is_cancelled(name)}
        return min((*self._due.values(), *self.cancelled_requests.values()), default=NEVER)

    def overdue(self, now: float) -> list[CancelOverdue]:
        """Overdue turns and requests; each gets a new deadline, `timeout` seconds later."""
        found: list[CancelOverdue] = []
        for session, deadline in self._due.items():
            turns = self.turns.sessions.get(session)
            if turns is None or deadline > now:
                continue
            later = [at + self.timeout for at in turns.cancelled() if at + self.timeout > now]
            self._due[session] = min([now + self.timeout, *later])
            overdue = self._overdue(session, turns, now)
            if (overdue.prompts or overdue.running) and turns.work != "unverified":
                found.append(overdue)
        for call, deadline in self.cancelled_requests.items():
            if deadline <= now:
                found.append(RequestOverdue(call, call.session))
                self.cancelled_requests[call] = now + self.timeout
        return found

    def _overdue(
        self, session: str, turns: SessionTurns[InFlightRequest], now: float
    ) -> TurnOverdue:
        def is_late(cancelled_at: float | None) -> bool:
            return cancelled_at is not None and cancelled_at + self.timeout <= now

        late = [each for each in turns.prompts if is_late(each.cancelled_at)]
        prompts = tuple(each.key for each in late if each.progress == "sent")
        return TurnOverdue(
            session, prompts, is_late(turns.cancelled_at) or len(prompts) < len(late)
        )

    def forget(self) -> None:
        """Drop everything: the process of the component ended."""
        self.turns.lost()
        self._due.clear()
        self.cancelled_requests.clear()
