"""Deadlines for the other end of a connection, in time in which this process runs.

While a process is blocked or gets no CPU, it does not read. When it goes on, what the other end has
answered in time is still in the kernel, and an ordinary deadline has passed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from conductor.background_tasks import background_tasks

__all__ = ["move_on_after_running", "sleep_running"]

_STEPS: Final = 10
"""However long the process stands still, it counts as one step; then it reads."""


async def sleep_running(seconds: float) -> None:
    """Sleep for a time in which this process runs."""
    for _ in range(_STEPS):
        await trio.sleep(seconds / _STEPS)


@asynccontextmanager
async def move_on_after_running(seconds: float) -> AsyncIterator[None]:
    """Cancel the block after a time in which this process runs."""
    async with background_tasks() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(_cancel_later, scope, seconds)
            yield


async def _cancel_later(scope: trio.CancelScope, seconds: float) -> None:
    await sleep_running(seconds)
    scope.cancel()
