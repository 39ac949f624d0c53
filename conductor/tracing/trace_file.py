"""Trace files: written by a thread, from a queue that never makes a message wait.

The thread wakes a moment after the first entry, so that entries are written together. If it cannot
keep up, entries are dropped and counted; a record says so at their place. A file that is over its
maximum size is renamed to `FILE.1`, and `FILE.1` to `FILE.2`.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from contextlib import suppress
from itertools import starmap
from pathlib import Path
from typing import Final

import attrs

from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.log import get_logger
from conductor.tracing.encoder import Encoder, Payloads
from conductor.tracing.recorder import Began, Entry, Lost, Recorder
from conductor.tracing.records import TraceComponent

__all__ = ["MAX_SIZE", "TraceFile"]

MAX_SIZE: Final = 256 * 1024 * 1024
"""Bytes of a trace file before another is begun."""
_KEPT: Final = 2
"""Number of older files."""
_MAX_QUEUED: Final = 32 * 1024 * 1024
"""Bytes of payloads that wait to be written."""
_ENTRY_SIZE: Final = 300
"""Bytes that an entry counts without its payload."""
_DELAY: Final = 0.02
"""Seconds from the first entry to the writing."""
_WRITE_SIZE: Final = 1024 * 1024
"""Bytes that are written at once."""
_CLOSE_TIMEOUT: Final = 5.0

log = get_logger(component="trace")


@attrs.define(eq=False, repr=False)
class TraceFile:
    """A trace file; `recorder()` makes the recorder of each chain that is written to it.

    The file is created with mode 0600; an older one of the same name is renamed first. Raises
    `OSError` if it cannot be created. Later errors are logged, and end the writing.
    """

    path: Path
    payloads: Payloads = "full"
    max_size: int = MAX_SIZE
    _encoder: Encoder = attrs.field(init=False)
    _queue: deque[tuple[Entry, int]] = attrs.field(factory=deque, init=False)
    _queued: int = attrs.field(default=0, init=False)
    """Bytes of all entries that were queued; `_written` of those that were taken."""
    _written: int = attrs.field(default=0, init=False)
    _lost: int = attrs.field(default=0, init=False)
    _awake: bool = attrs.field(default=False, init=False)
    _wake: threading.Event = attrs.field(factory=threading.Event, init=False)
    _closing: bool = attrs.field(default=False, init=False)
    _fd: int = attrs.field(init=False)
    _size: int = attrs.field(default=0, init=False)
    _thread: threading.Thread = attrs.field(init=False)
    _failed: bool = attrs.field(default=False, init=False)
    _chains: dict[Recorder, tuple[TraceComponent, ...]] = attrs.field(factory=dict, init=False)
    """The components of each chain that is running, for the headers of the next file."""

    def __attrs_post_init__(self) -> None:
        self._encoder = Encoder(self.payloads)
        self._rename_older()
        self._fd = self._create()
        self._thread = threading.Thread(target=self._run, name="trace", daemon=True)
        self._thread.start()

    def recorder(self, chain: str) -> Recorder:
        """A recorder for a chain of this name."""
        return Recorder(chain, self._put)

    def ended(self, recorder: Recorder) -> None:
        """The chain of this recorder has ended."""
        self._chains.pop(recorder, None)

    def flush(self) -> None:
        """Wait until what is queued now is written, for up to five seconds."""
        end = time.monotonic() + _CLOSE_TIMEOUT
        while self._written < self._queued and not self._failed and time.monotonic() < end:
            time.sleep(_DELAY / 10)

    def close(self) -> None:
        """Write what is queued, and close the file. Waits up to five seconds."""
        self._closing = True
        self._wake.set()
        self._thread.join(_CLOSE_TIMEOUT)

    # -- in the thread of the chain ----------------------------------------------------------------

    def _put(self, entry: Entry) -> None:
        if self._failed:
            return
        size = _ENTRY_SIZE
        if isinstance(entry, tuple) and (payload := entry[4]) is not None:
            size += payload.size if isinstance(payload, NotificationBatch) else len(payload)
        if self._queued - self._written + size > _MAX_QUEUED and self._queue:
            self._lost += 1
            return
        if self._lost:
            lost, self._lost = self._lost, 0
            recorder = entry[1].tracer if isinstance(entry, tuple) else entry.recorder
            self._queue.append((Lost(recorder, time.monotonic(), lost), 0))
        self._queued += size
        self._queue.append((entry, size))
        if not self._awake:
            self._awake = True
            self._wake.set()

    # -- in the thread of the file -----------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closing:
                self._wake.wait()
                if not self._closing:
                    time.sleep(_DELAY)
                self._wake.clear()
                self._awake = False
                self._write_queued()
            self._write_queued()
        except OSError as exc:
            log.error("trace ended", file=str(self.path), error=str(exc))
            self._failed = True
        finally:
            os.close(self._fd)

    def _write_queued(self) -> None:
        while self._queue:
            lines, size, taken = [], 0, 0
            while self._queue and size < _WRITE_SIZE:
                entry, entry_size = self._queue.popleft()
                taken += entry_size
                if isinstance(entry, Began):
                    self._chains[entry.recorder] = entry.components
                for line in self._encoder.encode(entry):
                    lines.append(line)
                    size += len(line)
            self._write(b"".join(lines))
            self._written += taken

    def _write(self, data: bytes) -> None:
        if self._size and self._size + len(data) > self.max_size:
            os.close(self._fd)
            self._rename_older()
            self._fd = self._create()
            headers = starmap(self._encoder.header, self._chains.items())
            data = b"".join(headers) + data
        self._size += len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def _create(self) -> int:
        self._size = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        return os.open(self.path, flags, 0o600)

    def _rename_older(self) -> None:
        names = [str(self.path), *(f"{self.path}.{number}" for number in range(1, _KEPT + 1))]
        for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
            with suppress(FileNotFoundError):
                os.replace(newer, older)
