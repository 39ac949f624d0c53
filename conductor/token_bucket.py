"""Token bucket: rate limit for log output. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["TokenBucket"]

_EVENTS_PER_SECOND: Final = 20


class TokenBucket(msgspec.Struct, eq=False):
    """Rate limit of `rate` units per second, with a burst of the same size; counts the excess."""

    rate: float = _EVENTS_PER_SECOND
    skipped: int = 0
    _left: float = 0.0
    _refilled_at: float = 0.0

    def __post_init__(self) -> None:
        self._left = self.rate

    def take(self, now: float, amount: int = 1) -> bool:
        """Whether `amount` units are allowed at `now` (seconds); if not, they count as skipped."""
        self._left = min(self.rate, self._left + (now - self._refilled_at) * self.rate)
        self._refilled_at = now
        if self._left <= 0:
            self.skipped += amount
            return False
        self._left -= amount
        return True

    def spend(self, amount: int) -> None:
        """Take `amount` units that are used already: what comes later waits for them."""
        self._left -= amount

    def report(self, now: float) -> dict[str, int] | None:
        """Extra log fields for an event: `skipped`, the number of events not reported before it.

        None if the rate is exceeded: the event is not logged.
        """
        if not self.take(now):
            return None
        skipped = self.take_skipped()
        return {"skipped": skipped} if skipped else {}

    def take_skipped(self) -> int:
        skipped, self.skipped = self.skipped, 0
        return skipped
