"""Reconnect backoff for a remote conductor.

Delays double up to a maximum and have jitter (`retry_delays`). Over HTTP (`Backoff`) all requests
of a connection share one state: any response resets it. Attempts end when there was no response
for as long as the server keeps a cut connection, and after `REFUSED_TIMEOUT` when the TCP
connection is refused: the server process has ended, and its connections with it, unless a load
balancer in front of it is being restarted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

import attrs
import trio

from conductor.log import get_logger

__all__ = ["REFUSED_TIMEOUT", "Backoff", "RefusedConnection", "retry_delays"]

_INITIAL_DELAY: Final = 0.1
_MAX_DELAY: Final = 10.0
REFUSED_TIMEOUT: Final = 5.0
"""Seconds of attempts while the TCP connection is refused."""

log: Final = get_logger(component="conductor")


@attrs.define(eq=False)
class RefusedConnection:
    """Duration for which TCP connections have been refused without interruption."""

    _since: float | None = attrs.field(default=None, init=False)

    def has_timed_out(self, *, refused: bool) -> bool:
        """Record the result of an attempt; whether `REFUSED_TIMEOUT` is exceeded."""
        now = trio.current_time()
        if not refused:
            self._since = None
        elif self._since is None:
            self._since = now
        return self._since is not None and now - self._since >= REFUSED_TIMEOUT


@attrs.define(eq=False)
class Backoff:
    """Backoff state of one connection. `keep`: seconds to retry; 0 means no retry."""

    keep: float = 0.0
    location: str = ""
    """URL for the log."""
    _failed_since: float | None = attrs.field(default=None, init=False)
    _refusal: RefusedConnection = attrs.field(factory=RefusedConnection, init=False)
    _delays: Iterator[float] = attrs.field(factory=lambda: retry_delays(), init=False)

    def reset(self) -> None:
        """Record a response."""
        self._failed_since, self._delays = None, retry_delays()
        self._refusal = RefusedConnection()

    async def wait_to_retry(self, *, refused: bool = False) -> bool:
        """Wait after a failure; return whether to retry. `refused`: TCP connection refused."""
        now = trio.current_time()
        if self._failed_since is None:
            self._failed_since = now
            if self.keep:
                log.warning("connection lost, reconnecting", location=self.location)
        if self._refusal.has_timed_out(refused=refused):
            return False
        if now - self._failed_since >= self.keep:
            return False
        await trio.sleep(next(self._delays))
        return True


def retry_delays() -> Iterator[float]:
    """Seconds to wait before each attempt: doubling up to `_MAX_DELAY`, with jitter of one half."""
    longest = _INITIAL_DELAY
    while True:
        yield random.uniform(longest / 2, longest)
        longest = min(longest * 2, _MAX_DELAY)
