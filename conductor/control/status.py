"""The status of this process, as `ps` shows it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from conductor import __version__
from conductor.control.running_chains import running_chains

if TYPE_CHECKING:
    import psutil

__all__ = ["process_status"]


def process_status(command: str, trace: str | None) -> dict[str, Any]:
    """Command, times, memory, and the status of each chain. Times are in seconds."""
    import psutil  # 20 ms, which no start waits for

    process = psutil.Process()
    return {
        "pid": process.pid,
        "version": __version__,
        "command": command,
        "started": process.create_time(),
        "memory": _memory(process),
        "memory_of_components": sum(map(_memory, process.children(recursive=True))),
        "trace": trace,
        "chains": [each.status() for each in running_chains()],
    }


def _memory(process: psutil.Process) -> int:
    """Resident bytes of a process; 0 if it has ended."""
    import psutil

    with suppress(psutil.Error):
        return process.memory_info().rss
    return 0
