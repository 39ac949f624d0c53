"""How long a server of ours is tried again that cannot be reached, over HTTP.

Each failure is followed by a wait that gets longer and differs from client to client; what is asked
for next over any connection counts as the next attempt. When nothing has been answered for as long
as the server keeps what is ours, it is given up; much sooner where nobody listens: the server is
gone, with everything of ours, unless what listens for it (a load balancer) is being restarted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

import attrs
import trio

from conductor.log import get_logger

__all__ = ["REFUSED_TIMEOUT", "Backoff", "retry_delays"]

_INITIAL_DELAY: Final = 0.1
_MAX_DELAY: Final = 10.0
REFUSED_TIMEOUT: Final = 5.0
"""Seconds that a server is tried again where nobody listens."""

log = get_logger(component="conductor")


@attrs.define(eq=False)
class Backoff:
    """`keep` is in seconds; at 0, the first failure is the last."""

    keep: float = 0.0
    location: str = ""
    """For people."""
    _failed_since: float | None = attrs.field(default=None, init=False)
    _refused_since: float | None = attrs.field(default=None, init=False)
    _delays: Iterator[float] = attrs.field(factory=lambda: retry_delays(), init=False)

    def reset(self) -> None:
        """The server has answered."""
        self._failed_since, self._refused_since, self._delays = None, None, retry_delays()

    async def wait_to_retry(self, *, refused: bool = False) -> bool:
        """After a failure: wait, and say whether to try again. `refused` listened there."""
        now = trio.current_time()
        if self._failed_since is None:
            self._failed_since = now
            if self.keep:
                log.warning("the connection was cut, and is tried again", location=self.location)
        if not refused:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        elif now - self._refused_since >= REFUSED_TIMEOUT:
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
