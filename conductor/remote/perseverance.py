"""How long a server of ours is tried again that cannot be reached, over HTTP.

Each failure is followed by a wait that gets longer and differs from client to client; what is asked
for next over any connection counts as the next attempt. When nothing has been answered for as long
as the server keeps what is ours, it is given up.
"""

from __future__ import annotations

import random
from typing import Final

import attrs
import trio

__all__ = ["Perseverance"]

_FIRST_DELAY: Final = 0.1
_LONGEST_DELAY: Final = 10.0


@attrs.define(eq=False)
class Perseverance:
    """`keep` is in seconds; at 0, the first failure is the last."""

    keep: float = 0.0
    _failing_since: float | None = attrs.field(default=None, init=False)
    _delay: float = attrs.field(default=_FIRST_DELAY, init=False)

    def reached(self) -> None:
        """The server has answered."""
        self._failing_since, self._delay = None, _FIRST_DELAY

    async def try_again(self) -> bool:
        """After a failure: wait, and say whether to try again."""
        now = trio.current_time()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since >= self.keep:
            return False
        delay, self._delay = self._delay, min(2 * self._delay, _LONGEST_DELAY)
        await trio.sleep(random.uniform(delay / 2, delay))
        return True
