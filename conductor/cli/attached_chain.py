"""A chain with a client of this process, for commands that must end although a plugin is stuck.

The first signal cancels the block and stops the chain in order, the second one kills it. A plugin
that does not end is given up `stop_timeout` seconds after the stop began, with its name and handler
in the log. One that blocks the event loop for so long ends the process, if the command says so.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, NoReturn, TypeVar

import trio

from conductor.background_tasks import background_tasks
from conductor.chain.chain import Chain
from conductor.chain.shutdown import abandoned_plugins
from conductor.chain.watchdog import Watchdog, max_stop_seconds, watchdog
from conductor.client.embedding import AttachedClient

__all__ = ["ENDING", "SIGNALS", "attached_chain"]

SIGNALS: Final = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]

ENDING: Final = "ending the chain; press again to kill it"

AnyAttachedClient = TypeVar("AnyAttachedClient", bound=AttachedClient[Any])


@asynccontextmanager
async def attached_chain(
    attached: AbstractAsyncContextManager[AnyAttachedClient],
    signals: list[int],
    leave: Callable[[], NoReturn],
    *,
    max_blocked: float | None = None,
) -> AsyncIterator[AnyAttachedClient]:
    """Run a chain of `attach` for the block, which a signal cancels; its number is in `signals`.

    `leave` ends the process; it is called instead of a return if a plugin still runs. A plugin that
    blocks the event loop for `max_blocked` seconds ends the process with exit code 1.
    """
    async with (
        background_tasks() as nursery,
        abandoned_plugins(leave) as plugins,
        attached as client_and_chain,
    ):
        chain = client_and_chain.chain
        chain.plugin_nursery = plugins
        with trio.CancelScope() as work:
            dog = await nursery.start(_handle_signals, chain, work, signals, max_blocked)
            yield client_and_chain
        dog.end_within(max_stop_seconds(chain.spec.stop_timeout))


async def _handle_signals(
    chain: Chain,
    work: trio.CancelScope,
    received: list[int],
    max_blocked: float | None,
    task_status: trio.TaskStatus[Watchdog] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Stop the chain in order on the first signal, kill it on the second."""
    with (
        trio.open_signal_receiver(*SIGNALS) as signals,
        watchdog(chain.spec.stop_timeout, SIGNALS, max_blocked=max_blocked) as dog,
    ):
        task_status.started(dog)
        async for number in signals:
            received.append(number)
            if received == [signal.SIGINT]:
                print(ENDING, file=sys.stderr, flush=True)
            work.cancel()
            if len(received) > 1:
                chain.kill()
