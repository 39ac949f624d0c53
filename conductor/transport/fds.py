"""File descriptors as a transport: pipes, sockets, terminals and plain files.

Reads and writes are tried first and waited for only when they would block (worth half of the
CPU per message). Plain files and devices like /dev/null are always ready, and cannot be waited for.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Sequence

import attrs
import trio

from conductor.errors import ConnectionClosed
from conductor.transport.base import CHUNK

__all__ = ["FdTransport"]

_HUNG_UP = getattr(select, "POLLRDHUP", 0)
_IOV_MAX = 64


@attrs.define(eq=False)
class FdTransport:
    """Reads one descriptor, writes another; owns both, and closes them."""

    _read_fd: int
    _write_fd: int
    _first: list[bytes] = attrs.field(factory=list)
    """What was read already."""
    _wait_to_read: bool = attrs.field(init=False)
    _wait_to_write: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._wait_to_read = _can_be_waited_for(self._read_fd)
        self._wait_to_write = _can_be_waited_for(self._write_fd)

    async def receive(self) -> bytes:
        if self._first:
            return self._first.pop(0)
        fd = self._read_fd
        while fd >= 0:
            try:
                if self._wait_to_read:
                    await trio.lowlevel.wait_readable(fd)
                else:
                    await trio.lowlevel.checkpoint()
                return os.read(fd, CHUNK)
            except BlockingIOError:
                continue
            except trio.ClosedResourceError:
                return b""
            except OSError:
                return b""  # whatever is wrong with it, it is this peer's end and nobody else's
        return b""

    def write_now(self, pieces: Sequence[bytes | memoryview]) -> int:
        try:
            if len(pieces) == 1:
                return os.write(self._write_fd, pieces[0])
            return os.writev(self._write_fd, pieces[:_IOV_MAX])
        except BlockingIOError:
            return 0
        except OSError as exc:
            raise ConnectionClosed(exc.strerror) from exc

    async def wait_writable(self) -> None:
        try:
            if self._write_fd >= 0 and self._wait_to_write:
                await trio.lowlevel.wait_writable(self._write_fd)
            else:
                await trio.lowlevel.checkpoint()
        except trio.ClosedResourceError:
            return

    def hung_up(self) -> bool:
        if self._read_fd < 0:
            return True
        poller = select.poll()
        poller.register(self._read_fd, _HUNG_UP)
        return any(events & (_HUNG_UP | select.POLLHUP) for _, events in poller.poll(0))

    def close_writing(self) -> None:
        fd, self._write_fd = self._write_fd, -1
        _close(fd)

    def close_reading(self) -> None:
        """End the incoming stream, also for whoever waits for it. Idempotent."""
        fd, self._read_fd = self._read_fd, -1
        _close(fd)

    def close(self) -> None:
        self.close_writing()
        self.close_reading()


def _can_be_waited_for(fd: int) -> bool:
    if sys.platform != "linux":
        return not stat.S_ISREG(os.fstat(fd).st_mode)
    try:
        with select.epoll() as poll:
            poll.register(fd)
    except PermissionError:
        return False
    except OSError:  # no descriptors left
        return not stat.S_ISREG(os.fstat(fd).st_mode)
    return True


def _close(fd: int) -> None:
    if fd >= 0:
        trio.lowlevel.notify_closing(fd)
        os.close(fd)
