"""The status of this process, as `ps` shows it."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any, Final

from conductor import __version__
from conductor.control.running_chains import running_chains
from conductor.transport.process_tree import descendants

__all__ = ["process_status"]

_STARTED: Final = time.time()
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def process_status(command: str, trace: str | None) -> dict[str, Any]:
    """Command, times, memory, and the status of each chain. Times are in seconds."""
    return {
        "pid": os.getpid(),
        "version": __version__,
        "command": command,
        "started": _started(),
        "memory": _memory("self"),
        "memory_of_components": sum(map(_memory, descendants(os.getpid()))),
        "trace": trace,
        "chains": [each.status() for each in running_chains()],
    }


def _started() -> float:
    """The start of the process, in seconds since 1970."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
        seconds = ticks / os.sysconf("SC_CLK_TCK")
        return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - seconds)
    return _STARTED


def _memory(pid: int | str) -> int:
    """Resident bytes of a process; 0 if unknown."""
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * _PAGE
    return 0
