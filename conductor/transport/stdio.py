"""The conductor's stdin and stdout as the transport of the protocol.

While it is claimed, fd 1 belongs to the protocol: what was stdout moves to a descriptor that only
the transport knows, fd 1 points at stderr, so that a stray `print` goes where logs go, and fd 0 at
/dev/null (design: invariant 8). O_NONBLOCK is a property of the open file, which the parent process
may share, so it is put back in the end.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from conductor.errors import ConnectionClosed
from conductor.transport.fd_transport import FdTransport
from conductor.transport.inherited_stdio import prefetched_stdin

__all__ = ["claim_stdio", "restore_blocking"]

_saved_blocking: list[tuple[int, bool]] = []
"""What is claimed, and whether it was blocking."""


@contextmanager
def claim_stdio() -> Iterator[FdTransport]:
    """Take fd 0 and fd 1 for the protocol, and give them back at the end."""
    saved_in, saved_out = os.dup(0), os.dup(1)
    read_fd, write_fd = _reopened(saved_in, os.O_RDONLY), _reopened(saved_out, os.O_WRONLY)
    _saved_blocking[:] = [(fd, os.get_blocking(fd)) for fd in (saved_in, saved_out)]
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    os.set_blocking(read_fd, False)
    os.set_blocking(write_fd, False)
    prefetched, prefetched_stdin[:] = list(prefetched_stdin), []
    transport = _StdioTransport(read_fd, write_fd, prefetched)
    try:
        yield transport
    finally:
        transport.close()
        restore_blocking()
        os.dup2(saved_in, 0)
        os.dup2(saved_out, 1)
        os.close(saved_in)
        os.close(saved_out)


def restore_blocking() -> None:
    """Set O_NONBLOCK as it was, for a process that ends without leaving the block."""
    for fd, was_blocking in _saved_blocking:
        os.set_blocking(fd, was_blocking)
    _saved_blocking.clear()


class _StdioTransport(FdTransport):
    """A client that does not read any more has gone, even if our stdin is still open."""

    def write_now(self, pieces: Sequence[bytes | memoryview]) -> int:
        try:
            return super().write_now(pieces)
        except ConnectionClosed:
            self.close_reading()
            raise


def _reopened(fd: int, access: int) -> int:
    """A descriptor for the same file, where the system allows with flags of its own.

    A terminal, or `2>&1`, makes stdout and stderr one open file; were that non-blocking, a line of
    log could be lost half way. Sockets cannot be opened anew, and plain files never block.
    """
    kind = os.fstat(fd).st_mode
    if os.path.sameopenfile(fd, 2) and (stat.S_ISFIFO(kind) or stat.S_ISCHR(kind)):
        try:
            return os.open(f"/dev/fd/{fd}", access | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            pass
    return os.dup(fd)
