"""Inherited file descriptors 0-2, plus bytes already read from stdin.

Imports only `os` and `sys`: it is needed before everything else.
"""

from __future__ import annotations

import os
import sys

__all__ = ["open_missing_stdio", "prefetched_stdin"]

prefetched_stdin: list[bytes] = []
"""Chunks read from stdin before a transport was there; `b""` is EOF."""


def open_missing_stdio() -> None:
    """Put /dev/null where the parent process left 0, 1 or 2 closed. To be called first of all.

    The next descriptor would get the number, and what is printed would go there.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
