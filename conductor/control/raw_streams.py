"""Raw bytes of each component and of the client, in one file each (`--debug-dir`).

A block in a file is a header line, the bytes as they were written or read, and a line feed. The
header has the seconds since the conductor's start, the wall time, the direction ("stdin" is what
the conductor wrote to the component; of the client, what it read from it), and the number of bytes:
`+1.250301 2026-11-23T14:03:11.502913Z stdout 58`. Notes begin with `#`. Secrets are not masked.

A thread writes, from a bounded queue; bytes that do not fit are dropped, and a note has their
number. A failed write does not affect the chain: one warning is logged, and writing ends.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from conductor.control.directory import private_directory
from conductor.control.running_chains import running_chains
from conductor.log import get_logger
from conductor.supervision.endpoint import Endpoint, Launcher
from conductor.transport.base import Transport
from conductor.transport.thread_signals import block_signals

__all__ = ["MAX_FILE", "RawStreams"]

MAX_FILE: Final = 64 * 1024 * 1024
"""Bytes of a file, without the note at its end."""
_MAX_QUEUED: Final = 32 * 1024 * 1024
_HEADER_SIZE: Final = 70
_CLOSE_TIMEOUT: Final = 5.0
_NAME: Final = re.compile(r"[^\w-]+")

log: Final = get_logger(component="debug-dir")
Record: TypeAlias = Callable[[str, bytes], None]
"""Records bytes of a direction."""


@attrs.define(eq=False)
class _File:
    path: Path
    size: int = 0
    dropped: int = 0
    """Bytes that did not fit into the queue, not reported yet."""


@attrs.define(eq=False)
class RawStreams:
    """Writes to files in `directory`, which only this user can read."""

    directory: Path
    _start: float = attrs.field(factory=time.monotonic, init=False)
    _queue: deque[tuple[_File, bytes, bytes]] = attrs.field(factory=deque, init=False)
    _queued: int = attrs.field(default=0, init=False)
    _changed: threading.Condition = attrs.field(factory=threading.Condition, init=False)
    _closing: bool = attrs.field(default=False, init=False)
    _failed: bool = attrs.field(default=False, init=False)
    _thread: threading.Thread = attrs.field(init=False)
    _clients: count[int] = attrs.field(factory=count, init=False)

    def open(self) -> None:
        """Create the directory, and start to write. Raises `OSError`."""
        private_directory(self.directory)
        probe = self.directory / f".{os.getpid()}"
        probe.touch(mode=0o600)
        probe.unlink()
        self._thread = threading.Thread(target=self._run, name="debug-dir", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what is queued, for up to five seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(_CLOSE_TIMEOUT)

    def client(self, transport: Transport) -> Transport:
        """A transport of the client with its bytes recorded."""
        number, opened = next(self._clients), list[Record]()

        def record(direction: str, data: bytes) -> None:
            if not opened:  # the chain is not running before
                opened.append(self._open_file("client", os.getpid(), number))
            opened[0](direction, data)

        return _RecordedTransport(transport, record, read="stdin", written="stdout")

    def launcher(self, component: str, launch: Launcher) -> Launcher:
        """A launcher of endpoints with their bytes recorded, in a file for each start."""
        starts = count()

        def recorded(limit: int) -> Endpoint:
            endpoint = launch(limit)
            pid = getattr(endpoint, "pid", None)
            record = self._open_file(component, pid or os.getpid(), next(starts))
            return _RecordedEndpoint(endpoint, record)

        return recorded

    def _open_file(self, component: str, pid: int, number: int) -> Record:
        chains = [each.recorder.chain for each in running_chains() if each.recorder is not None]
        chain = chains[0].partition("/")[0] if chains else "chain"
        words = [_NAME.sub("-", word)[:60] for word in (chain, component)]
        name = ".".join([*words, str(pid), str(number)])
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        for attempt in range(1000):
            path = self.directory / (f"{name}.raw" if attempt == 0 else f"{name}-{attempt}.raw")
            try:
                os.close(os.open(path, flags, 0o600))
            except FileExistsError:
                continue
            except OSError as exc:
                self._fail(exc)
                break
            file = _File(path)
            return lambda direction, data: self._put(file, direction, data)
        return lambda direction, data: None

    def _put(self, file: _File, direction: str, data: bytes) -> None:
        if self._failed or file.size > MAX_FILE:
            return
        with self._changed:
            if self._queued + len(data) > _MAX_QUEUED:
                file.dropped += len(data)
                return
            if file.dropped:
                note = f"# {file.dropped} bytes dropped: they came faster than they were written\n"
                self._queue.append((file, b"", note.encode()))
                file.dropped = 0
            wall = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            elapsed = time.monotonic() - self._start
            header = f"+{elapsed:.6f} {wall} {direction} {len(data)}\n".encode()
            self._queue.append((file, header, data))
            self._queued += len(data) + _HEADER_SIZE
            self._changed.notify()

    # -- in the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        block_signals()
        while True:
            with self._changed:
                while not self._queue and not self._closing:
                    self._changed.wait()
                if not self._queue:
                    return
                file, header, data = self._queue.popleft()
            if not self._failed:
                try:
                    _write_block(file, header, data)
                except OSError as exc:
                    self._fail(exc)
            with self._changed:
                self._queued -= len(data) + _HEADER_SIZE if header else 0

    def _fail(self, exc: OSError) -> None:
        if not self._failed:
            self._failed = True
            place = str(self.directory)
            log.warning("raw streams are written no more", directory=place, error=exc.strerror)


def _write_block(file: _File, header: bytes, data: bytes) -> None:
    if file.size > MAX_FILE:
        return
    block = b"".join((header, data, b"\n")) if header else data
    file.size += len(block)
    if file.size > MAX_FILE:
        block = f"# limit of {MAX_FILE} bytes reached: nothing more is written\n".encode()
    # Opened for each block: no descriptor is held for each component of each client.
    fd = os.open(file.path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        while block:
            block = block[os.write(fd, block) :]
    finally:
        os.close(fd)


@attrs.define(eq=False)
class _RecordedTransport:
    """A transport that records what is read and written."""

    _inner: Transport
    _record: Record
    _read: str = attrs.field(alias="read")
    _written: str = attrs.field(alias="written")

    async def receive(self) -> bytes:
        chunk = await self._inner.receive()
        self._record(self._read, chunk)
        return chunk

    async def receive_each(self, take: Callable[[bytes], bool]) -> bool:
        def recorded(chunk: bytes) -> bool:
            self._record(self._read, chunk)
            return take(chunk)

        goes_on = await self._inner.receive_each(recorded)
        if not goes_on:
            self._record(self._read, b"")
        return goes_on

    def write_now(self, pieces: Sequence[bytes | memoryview]) -> int:
        taken = self._inner.write_now(pieces)
        if taken:
            self._record(self._written, b"".join(pieces)[:taken])
        return taken

    async def wait_writable(self) -> None:
        await self._inner.wait_writable()

    async def write_each(self, step: Callable[[], bool]) -> None:
        await self._inner.write_each(step)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def peer_closed_write(self) -> bool:
        return self._inner.peer_closed_write()

    def peer_closed_read(self) -> bool:
        return self._inner.peer_closed_read()

    def close_writing(self) -> None:
        self._inner.close_writing()

    def close(self) -> None:
        self._inner.close()


@attrs.define(eq=False)
class _RecordedEndpoint:
    """An endpoint with its transport and its stderr recorded."""

    _inner: Endpoint
    _record: Record
    transport: Transport = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.transport = _RecordedTransport(
            self._inner.transport, self._record, read="stdout", written="stdin"
        )

    @property
    def pid(self) -> int | None:
        return getattr(self._inner, "pid", None)

    @property
    def location(self) -> str:
        return self._inner.location

    @property
    def status(self) -> str | None:
        return self._inner.status

    @property
    def reached(self) -> bool:
        return self._inner.reached

    async def wait(self) -> str:
        return await self._inner.wait()

    async def read_stderr(self) -> bytes:
        chunk = await self._inner.read_stderr()
        self._record("stderr", chunk)
        return chunk

    def stderr_waiting(self) -> int:
        return self._inner.stderr_waiting()

    def signal(self, number: signal.Signals) -> None:
        self._inner.signal(number)

    def close(self) -> None:
        self._inner.close()
