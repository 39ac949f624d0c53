"""Processes that wait for the next client of a server (`prewarm: true`).

One process of each program of the chain file is started with the server and connected to the next
client that needs it: its chain then answers `initialize` without waiting for the programs to start.
A process that waits has received nothing, neither the plugin's options nor anything of a client.
One that was taken is replaced, after a pause, so that its start does not slow down the client that
took it. One that ends or does not start is not replaced before a client has started the program.
When the chain file has changed, all are replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from conductor.chain.local_programs import local_programs
from conductor.chainfile.model import ChainFile
from conductor.log import get_logger
from conductor.transport.spawn import SpareProgram, SpawnError, spare_programs

__all__ = ["keep_spares"]

_INTERVAL: Final = 1.0
"""Seconds between checks: a process is replaced one to two intervals after it was taken."""

log: Final = get_logger(component="server")


async def keep_spares(current: Callable[[], ChainFile]) -> None:
    """Keep one process of each program of the current chain, if it has `prewarm`, until cancelled;
    then end those that wait."""
    due: list[SpareProgram] = []
    kept: ChainFile | None = None
    try:
        while True:
            chain = current()
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
    if not chain.prewarm:
        return []
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
