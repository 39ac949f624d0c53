"""Second stage of the `orphan_guard`: kill all processes with the mark given as argument."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Final

import psutil

__all__ = ["kill_with_mark"]

_TIMEOUT: Final = 5.0
_EMPTY_CHECKS: Final = 3
"""Consecutive checks without a match before it ends: a process has no readable environment for a
moment during `exec`."""
_CHECK_INTERVAL: Final = 0.01


def main() -> None:
    end = time.monotonic() + _TIMEOUT
    found_nothing = 0
    while found_nothing < _EMPTY_CHECKS and time.monotonic() < end:
        if kill_with_mark(sys.argv[1]):  # a killed process may have started another before
            found_nothing = 0
        else:
            found_nothing += 1
        time.sleep(_CHECK_INTERVAL)


def kill_with_mark(mark: str) -> bool:
    """Kill the processes with this mark, and their descendants; true if there were any."""
    found = False
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("ACP_CONDUCTOR_TREE", "").startswith(mark):
                found = True
                for each in (*process.children(recursive=True), process):
                    each.kill()
    return found


if __name__ == "__main__":
    main()
