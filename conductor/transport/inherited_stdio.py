"""Inherited file descriptors 0-2, plus bytes already read from stdin.

Imports only `os` and `sys`: it is used before all other modules.
"""

from __future__ import annotations

import os
import sys

__all__ = ["open_missing_stdio", "prefetched_stdin"]

prefetched_stdin: list[bytes] = []
"""Chunks read from stdin before the transport exists; `b""` is EOF."""


def open_missing_stdio() -> None:
    """Open /dev/null for each of descriptors 0-2 that is closed. Call it before opening any file.

    Otherwise the next file would get the number, and printed text would go there.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
