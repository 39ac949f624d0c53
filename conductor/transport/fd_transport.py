"""File descriptors as a transport: pipes, sockets, terminals and plain files.

Writes are tried first and waited for only if they would block (saves half of the CPU per message).
I/O loops wait in the epoll fast path if it is installed. Plain files and devices like /dev/null
are always ready, and epoll refuses them.
"""

from __future__ import annotations

import fcntl
import os
import select
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import trio

from conductor.errors import ConnectionClosed
from conductor.transport.base import WaitingTransport
from conductor.transport.epoll_loop import current_fast_path

__all__ = ["FdTransport"]

_POLLRDHUP = getattr(select, "POLLRDHUP", 0)
_IOV_MAX = 64
_PIPE_SIZE = 262144
"""Capacity of a pipe and size of a read, in bytes (with 4 KiB messages, three quarters of the CPU
of reads of 64 KiB)."""

# By default, glibc's malloc maps each block over 128 KiB anew, page by page, and returns the end of
# its heap to the system from 256 KiB on: 0.5 ms for each message of 1 MiB. Once a mapped block was
# freed, its size replaces the 128 KiB, twice its size the 256 KiB. Three proxies with messages of
# 1 MiB need 8 MiB of heap (2 MiB instead of 4 here: 150 page faults a message, 5 % of its CPU).
bytes(4 * 1024 * 1024)


class FdTransport(WaitingTransport):
    """Reads one descriptor, writes another; owns both, and closes them."""

    def __init__(self, read_fd: int, write_fd: int, prefetched: Iterable[bytes] = ()) -> None:
        super().__init__()
        _enlarge_pipe(read_fd)
        _enlarge_pipe(write_fd)
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._prefetched = list(prefetched)
        """Chunks read before the transport was created."""
        self._wait_to_read = _is_pollable(read_fd)
        self._wait_to_write = _is_pollable(write_fd)

    @property
    def read_fd(self) -> int:
        """The descriptor that is read; -1 once it is closed."""
        return self._read_fd

    async def receive(self) -> bytes:
        if self._prefetched:
            return self._prefetched.pop(0)
        while self._read_fd >= 0:
            try:
                if self._wait_to_read:
                    await trio.lowlevel.wait_readable(self._read_fd)
                else:
                    await trio.lowlevel.checkpoint()
            except (OSError, trio.ClosedResourceError):
                return b""
            chunk = self._read_now()
            if chunk is not None:
                return chunk
        return b""

    async def receive_each(self, take: Callable[[bytes], bool]) -> bool:
        """With an epoll fast path, `take` is called from there, without a task switch."""
        fast_path = current_fast_path() if self._wait_to_read else None
        while fast_path is None or self._prefetched or self._read_fd < 0:
            chunk = await self.receive()
            if not chunk or take(chunk):
                return chunk != b"" and self._read_fd >= 0
        ended = False

        def step() -> bool:
            nonlocal ended
            chunk = self._read_now()
            ended = chunk == b""
            return ended or (chunk is not None and take(chunk))

        await fast_path.sleep(self._read_fd, select.EPOLLIN, step)
        return not ended and self._read_fd >= 0

    def write_now(self, pieces: Sequence[bytes | memoryview]) -> int:
        try:
            if len(pieces) == 1:
                return os.write(self._write_fd, pieces[0])
            return os.writev(self._write_fd, pieces[:_IOV_MAX])
        except BlockingIOError:
            return 0
        except OSError as exc:
            raise ConnectionClosed(exc.strerror) from exc

    def poll_writable(self, seconds: float) -> bool:
        """Block the calling thread until bytes can be written; false after `seconds`."""
        poll = select.poll()
        poll.register(self._write_fd, select.POLLOUT)
        return bool(poll.poll(max(0.0, seconds) * 1000))

    async def wait_writable(self) -> None:
        try:
            if self._write_fd >= 0 and self._wait_to_write:
                await trio.lowlevel.wait_writable(self._write_fd)
            else:
                await trio.lowlevel.checkpoint()
        except trio.ClosedResourceError:
            return

    async def write_each(self, step: Callable[[], bool]) -> None:
        """With an epoll fast path, `step` is called from there, without a task switch."""
        fast_path = current_fast_path() if self._wait_to_write else None
        if fast_path is not None and self._write_fd >= 0:
            await fast_path.sleep(self._write_fd, select.EPOLLOUT, step)
            return
        await super().write_each(step)

    def pause_writing(self) -> None:
        if not self._writing_paused:
            if (fast_path := current_fast_path()) is not None:
                fast_path.pause(self._write_fd)
            super().pause_writing()

    def resume_writing(self) -> None:
        if self._writing_paused:
            super().resume_writing()
            if (fast_path := current_fast_path()) is not None:
                fast_path.resume(self._write_fd, select.EPOLLOUT)

    def _read_now(self) -> bytes | None:
        """Read available bytes; `b""` at the end of the stream, `None` if there are none yet."""
        try:
            return os.read(self._read_fd, _PIPE_SIZE) if self._read_fd >= 0 else b""
        except BlockingIOError:
            return None
        except OSError:
            return b""  # an error ends only this peer

    def peer_closed_write(self) -> bool:
        if self._read_fd < 0:
            return True
        poller = select.poll()
        poller.register(self._read_fd, _POLLRDHUP)
        return any(events & (_POLLRDHUP | select.POLLHUP) for _, events in poller.poll(0))

    def peer_closed_read(self) -> bool:
        if self._write_fd < 0:
            return True
        poller = select.poll()
        poller.register(self._write_fd, 0)
        return bool(poller.poll(0))  # POLLERR or POLLHUP, which need not be requested

    def close_writing(self) -> None:
        fd, self._write_fd = self._write_fd, -1
        _close(fd)

    def close_reading(self) -> None:
        """End the incoming stream, also for a waiting task. Idempotent."""
        fd, self._read_fd = self._read_fd, -1
        _close(fd)

    def close(self) -> None:
        self.close_writing()
        self.close_reading()


def _is_pollable(fd: int) -> bool:
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


def _enlarge_pipe(fd: int) -> None:
    """Enlarge a pipe to more than one chunk (Linux): half as many process switches."""
    with suppress(OSError, AttributeError):
        if fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) < _PIPE_SIZE:
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)


def _close(fd: int) -> None:
    if fd >= 0:
        fast_path = current_fast_path()
        if fast_path is not None:
            fast_path.closing(fd)
        trio.lowlevel.notify_closing(fd)
        os.close(fd)
