"""A nursery for tasks that end with a block of code."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

__all__ = ["background_tasks"]


@asynccontextmanager
async def background_tasks() -> AsyncIterator[trio.Nursery]:
    """A nursery that cancels its tasks when the block ends.

    An exception of the block is raised as it is, not in an exception group.
    """
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except (trio.Cancelled, GeneratorExit):
            raise
        except BaseException as exc:
            failure = exc
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
