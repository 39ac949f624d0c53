"""Model of the lane rules: `Lanes` accepts an event, or raises with the rule that forbids it."""

from __future__ import annotations

from collections import deque

import attrs

TO_AGENT, TO_CLIENT = "toward the agent", "toward the client"
OTHER = {TO_AGENT: TO_CLIENT, TO_CLIENT: TO_AGENT}


class BrokenRule(AssertionError):
    pass


@attrs.define
class Lanes:
    """Names stand for messages; an answer is called `answer(name)`."""

    waiting: dict[str, deque[str]] = attrs.field(
        factory=lambda: {TO_AGENT: deque(), TO_CLIENT: deque()}
    )
    holder: dict[str, str | None] = attrs.field(factory=lambda: {TO_AGENT: None, TO_CLIENT: None})

    def arrive(self, lane: str, item: str) -> None:
        self.waiting[lane].append(item)

    def withdraw(self, lane: str, item: str) -> None:
        """It was cancelled while it waited in its lane."""
        self.waiting[lane].remove(item)

    def waits(self, lane: str, item: str) -> bool:
        return item in self.waiting[lane]

    def passes(self, lane: str, item: str) -> None:
        """It was forwarded without being handled."""
        self._turn_of(lane, item)

    def begins(self, lane: str, item: str) -> None:
        self._turn_of(lane, item)
        self.holder[lane] = item

    def resumes(self, lane: str, item: str, answer: str) -> None:
        """The handler of `item` has the response that it awaited."""
        self._turn_of(lane, answer)
        if item in self.holder.values():
            raise BrokenRule(f"{item} waited, and held a lane")
        self.holder[lane] = item

    def lets_go(self, item: str) -> None:
        """Its handler waits for an answer, released its lane, or has ended."""
        for lane, holder in self.holder.items():
            if holder == item:
                self.holder[lane] = None

    def check_empty(self) -> None:
        if any(self.waiting.values()) or any(self.holder.values()):
            raise BrokenRule(f"left over: {self.waiting}, {self.holder}")

    def _turn_of(self, lane: str, item: str) -> None:
        if self.holder[lane] is not None:
            raise BrokenRule(f"{item} had its turn {lane}, which {self.holder[lane]} holds")
        if not self.waiting[lane] or self.waiting[lane][0] != item:
            raise BrokenRule(f"{item} had its turn {lane} before {list(self.waiting[lane])}")
        self.waiting[lane].popleft()
