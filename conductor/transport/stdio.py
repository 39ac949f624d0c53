"""The conductor's stdin and stdout as the transport of the protocol.

While they are claimed, only the transport has descriptors for them: fd 1 is a duplicate of stderr,
so that a stray `print` goes to the log, and fd 0 is /dev/null. O_NONBLOCK is a property of the open
file, which the parent process may share, so it is restored at the end.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper

from conductor.transport.fd_transport import FdTransport
from conductor.transport.inherited_stdio import prefetched_stdin

__all__ = ["claim_stdio", "restore_blocking"]

_saved_blocking: list[tuple[int, bool]] = []
"""The claimed descriptors, and whether they were blocking."""


@contextmanager
def claim_stdio() -> Iterator[FdTransport]:
    """Reserve stdin and stdout for the protocol inside the block."""
    saved_in, saved_out = os.dup(0), os.dup(1)
    read_fd, write_fd = _reopened(saved_in, os.O_RDONLY), _reopened(saved_out, os.O_WRONLY)
    _saved_blocking[:] = [(fd, os.get_blocking(fd)) for fd in (saved_in, saved_out)]
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a `print` is in the log when it happens
    os.set_blocking(read_fd, False)
    os.set_blocking(write_fd, False)
    prefetched, prefetched_stdin[:] = list(prefetched_stdin), []
    transport = _StdioTransport(read_fd, write_fd, prefetched)
    try:
        yield transport
    finally:
        transport.close()
        restore_blocking()
        with suppress(OSError, ValueError):
            sys.stdout.flush()  # what is printed without a line break goes to stderr, too
        os.dup2(saved_in, 0)
        os.dup2(saved_out, 1)
        os.close(saved_in)
        os.close(saved_out)


def restore_blocking() -> None:
    """Restore O_NONBLOCK, for a process that exits without leaving the block."""
    for fd, was_blocking in _saved_blocking:
        os.set_blocking(fd, was_blocking)
    _saved_blocking.clear()


class _StdioTransport(FdTransport):
    """Treats a client that closed its reading side as gone, even if stdin is still open."""

    def close_writing(self) -> None:
        super().close_writing()
        self.close_reading()


def _reopened(fd: int, access: int) -> int:
    """A new descriptor for the same file; with separate flags if it shares the file with stderr.

    On a terminal, or with `2>&1`, stdout and stderr are one open file; if it were non-blocking, log
    lines could be cut off. Sockets cannot be reopened, and plain files never block.
    """
    kind = os.fstat(fd).st_mode
    if os.path.sameopenfile(fd, 2) and (stat.S_ISFIFO(kind) or stat.S_ISCHR(kind)):
        try:
            return os.open(f"/dev/fd/{fd}", access | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            pass
    return os.dup(fd)
