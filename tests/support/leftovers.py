"""Processes that a test leaves behind.

A process that is in its exit is not one: the guard of a killed agent looks for other processes and
ends by itself, as does the process that copies the input of an agent without a client.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from contextlib import suppress

import psutil

from support.forked_command import SERVERS

EXIT_TIME = 10
"""Seconds within which a process ends that is in its exit, on a machine with other work."""
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Processes that lose their parent become children of this one, where Linux lets us ask."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants() -> set[psutil.Process]:
    """All processes below this one, but no server of commands, nor what is below it.

    A server starts `ldconfig` while it imports trio. It waits for each command, and what a command
    leaves behind is adopted by this process.
    """
    ours: set[psutil.Process] = set()
    for child in psutil.Process().children():
        if child.pid not in SERVERS:
            ours.add(child)
            with suppress(psutil.NoSuchProcess):
                ours.update(child.children(recursive=True))
    return ours


def running(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that have not ended within `EXIT_TIME`; reaps the others."""
    return psutil.wait_procs(processes, EXIT_TIME)[1]


def left_behind(before: set[psutil.Process]) -> list[str]:
    """What runs below this process, and was not there before; it is killed."""
    left = running(descendants() - before)
    commands = [_command(each) for each in left]
    for each in left:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    running(left)
    return commands


def _command(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"{process.pid}: {' '.join(process.cmdline())} ({process.status()})"
    return f"{process.pid}"
