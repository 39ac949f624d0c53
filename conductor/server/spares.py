"""Processes that wait for the next client of a server (`prewarm: true`).

One process of each program of the chain file is started with the server and connected to the next
client that needs it: its chain then answers `initialize` without waiting for the programs to start.
A process that waits has received nothing, neither the plugin's options nor anything of a client.
One that was taken is replaced, after a pause, so that its start does not slow down the client that
took it. One that ends or does not start is not replaced before a client has started the program.
When the chain file has changed, all are replaced.

Without `prewarm` there is no task and no timer: the first client after a change of the file notices
that it has got `prewarm`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from conductor.background_tasks import background_tasks
from conductor.chain.local_programs import local_programs
from conductor.chainfile.model import ChainFile
from conductor.log import get_logger
from conductor.server.current_chain import CurrentChain
from conductor.transport.spawn import SpareProgram, SpawnError, spare_programs

__all__ = ["spare_processes"]

_INTERVAL: Final = 1.0
"""Seconds between checks: a process is replaced one to two intervals after it was taken."""

log: Final = get_logger(component="server")


@asynccontextmanager
async def spare_processes(current: CurrentChain) -> AsyncIterator[None]:
    """While the current chain has `prewarm`, keep one process of each of its programs."""
    is_kept = False

    async def keep() -> None:
        nonlocal is_kept
        await _keep(current)
        is_kept = False

    def begin(chain: ChainFile) -> None:
        nonlocal is_kept
        if chain.prewarm and not is_kept:
            is_kept = True
            nursery.start_soon(keep)

    async with background_tasks() as nursery:
        current.on_change = begin
        begin(current())
        try:
            yield
        finally:
            current.on_change = lambda chain: None


async def _keep(current: Callable[[], ChainFile]) -> None:
    """Keep processes until the current chain has no `prewarm`, or cancelled; then end those that
    wait."""
    due: list[SpareProgram] = []
    kept: ChainFile | None = None
    try:
        while (chain := current()).prewarm:
            if chain is not kept:
                _end_all()
                kept, due = chain, _programs(chain)
                spare_programs.extend(due)
            for program in due:
                if program.is_wanted:
                    _start(program)
            await trio.sleep(_INTERVAL)
            due = [program for program in spare_programs if program.is_wanted]
            await trio.sleep(_INTERVAL)
            _report_ended()
    finally:
        _end_all()


def _programs(chain: ChainFile) -> list[SpareProgram]:
    return [SpareProgram(argv, env, cwd) for argv, env, cwd in local_programs(chain)]


def _end_all() -> None:
    for program in spare_programs:
        program.end()
    spare_programs.clear()


def _start(program: SpareProgram) -> None:
    try:
        program.start()
    except SpawnError as exc:
        log.warning("spare program did not start", error=str(exc))
    else:
        log.debug("spare program started", pid=program.pid)


def _report_ended() -> None:
    for program in spare_programs:
        pid = program.pid
        if program.end_exited():
            log.warning("spare program ended", pid=pid)
