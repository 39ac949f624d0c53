"""Nursery for the plugins of a program's chains; lets the program exit although a plugin hangs.

A chain gives up a plugin that still runs `stop_timeout` after the stop began. Neither a thread nor
a shielded task can be ended from outside, so the program exits without it, once everything else has
ended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NoReturn

import trio

from conductor.background_tasks import background_tasks

__all__ = ["abandoned_plugins"]


@asynccontextmanager
async def abandoned_plugins(leave: Callable[[], NoReturn]) -> AsyncIterator[trio.Nursery]:
    """A nursery for `Chain.plugin_nursery`.

    `leave` ends the process; it is called at the end of the block if a plugin still runs.
    """
    async with background_tasks() as nursery:
        yield nursery
        if nursery.child_tasks:
            leave()
