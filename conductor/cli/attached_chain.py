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

__all__ = ["SIGNALS", "attached_chain"]

SIGNALS: Final = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]

_ENDING: Final = "ending the chain; press again to kill it"

AnyAttachedClient = TypeVar("AnyAttachedClient", bound=AttachedClient[Any])


@asynccontextmanager
async def attached_chain(
    attached: AbstractAsyncContextManager[AnyAttachedClient],
    signals: list[int],
    leave: Callable[[], NoReturn],
    *,
    max_blocked: float | None = None,
    interrupt: Callable[[], bool] = lambda: False,
    note: Callable[[str], None] | None = None,
    before_exit: Callable[[], None] = lambda: None,
) -> AsyncIterator[AnyAttachedClient]:
    """Run a chain of `attach` for the block, which a signal cancels; its number is in `signals`.

    `leave` ends the process; it is called instead of a return if a plugin still runs. A plugin that
    blocks the event loop for `max_blocked` seconds ends the process with exit code 1, after
    `before_exit`. `interrupt` is called for a first SIGINT: whether the block goes on nevertheless;
    `note` tells the user what happens, by default on stderr.
    """

    async def handle_signals(
        chain: Chain,
        work: trio.CancelScope,
        task_status: trio.TaskStatus[Watchdog] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Stop the chain in order on the first signal, kill it on the second."""
        with (
            trio.open_signal_receiver(*SIGNALS) as received,
            watchdog(
                chain.spec.stop_timeout, SIGNALS, max_blocked=max_blocked, before_exit=before_exit
            ) as dog,
        ):
            task_status.started(dog)
            async for number in received:
                signals.append(number)
                if signals == [signal.SIGINT] and interrupt():
                    continue
                if signals == [signal.SIGINT]:
                    (note or _say)(_ENDING)
                work.cancel()
                if len(signals) > 1:
                    chain.kill()

    async with (
        background_tasks() as nursery,
        abandoned_plugins(leave) as plugins,
        attached as client_and_chain,
    ):
        chain = client_and_chain.chain
        chain.plugin_nursery = plugins
        with trio.CancelScope() as work:
            dog = await nursery.start(handle_signals, chain, work)
            yield client_and_chain
        dog.end_within(max_stop_seconds(chain.spec.stop_timeout))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
