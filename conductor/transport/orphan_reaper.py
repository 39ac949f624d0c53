"""Reap adopted children for as long as the process runs."""

from __future__ import annotations

import math
import signal
from typing import Final

import trio

from conductor.transport.process_tree import reap_adopted

__all__ = ["reap_orphans"]

_MIN_INTERVAL: Final = 0.5
"""Minimum seconds between two checks, however many processes end."""


async def reap_orphans() -> None:
    """Reap adopted children whenever a child ends. Only in the main thread."""
    with trio.open_signal_receiver(signal.SIGCHLD) as signals:
        while True:
            again = reap_adopted(trio.current_time())
            await trio.sleep(_MIN_INTERVAL)
            with trio.move_on_at(math.inf if again is None else again):
                await anext(signals)
