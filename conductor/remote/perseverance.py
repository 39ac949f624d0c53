"""How long a server of ours is tried again that cannot be reached, over HTTP.

Each failure is followed by a wait that gets longer and differs from client to client; what is asked
for next over any connection counts as the next attempt. When nothing has been answered for as long
as the server keeps what is ours, it is given up; much sooner where nobody listens: the server is
gone, with everything of ours, unless what listens for it (a load balancer) is being restarted.
"""

from __future__ import annotations

import random
from typing import Final

import attrs
import trio

from conductor.log import get_logger

__all__ = ["NOBODY", "Perseverance"]

_FIRST_DELAY: Final = 0.1
_LONGEST_DELAY: Final = 10.0
NOBODY: Final = 5.0
"""Seconds that a server is tried again where nobody listens."""

log = get_logger(component="conductor")


@attrs.define(eq=False)
class Perseverance:
    """`keep` is in seconds; at 0, the first failure is the last."""

    keep: float = 0.0
    where: str = ""
    """For people."""
    _failing_since: float | None = attrs.field(default=None, init=False)
    _nobody_since: float | None = attrs.field(default=None, init=False)
    _delay: float = attrs.field(default=_FIRST_DELAY, init=False)

    def reached(self) -> None:
        """The server has answered."""
        self._failing_since, self._nobody_since, self._delay = None, None, _FIRST_DELAY

    async def try_again(self, *, nobody: bool = False) -> bool:
        """After a failure: wait, and say whether to try again. `nobody` listened there."""
        now = trio.current_time()
        if self._failing_since is None:
            self._failing_since = now
            if self.keep:
                log.warning("the connection was cut, and is tried again", where=self.where)
        if not nobody:
            self._nobody_since = None
        elif self._nobody_since is None:
            self._nobody_since = now
        elif now - self._nobody_since >= NOBODY:
            return False
        if now - self._failing_since >= self.keep:
            return False
        delay, self._delay = self._delay, min(2 * self._delay, _LONGEST_DELAY)
        await trio.sleep(random.uniform(delay / 2, delay))
        return True
