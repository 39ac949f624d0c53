"""Encoding of entries by a thread, from a queue that never makes a message wait.

The thread wakes a moment after the first entry, so that entries are encoded together. If it cannot
keep up, entries are dropped and counted; a record says so at their place. Encoded records go to
`write` of a subclass (`TraceFile`), and to `listeners`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import attrs

from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.log import Logger, get_logger
from conductor.tracing.encoder import Encoder, Payloads
from conductor.tracing.recorder import Entry, LossEntry, StartEntry, TraceRecorder
from conductor.tracing.trace_component import TraceComponent
from conductor.transport.threads import block_signals

__all__ = ["TraceWriter", "log"]

_MAX_QUEUED: Final = 32 * 1024 * 1024
"""Bytes of payloads that wait to be written."""
_ENTRY_SIZE: Final = 300
"""Bytes that an entry counts without its payload."""
_DELAY: Final = 0.02
"""Seconds from the first entry to the writing, unless `_ENOUGH` bytes wait before."""
_ENOUGH: Final = 1024 * 1024
"""Bytes that wait when the writing begins: with 256 KiB, the thread takes the interpreter from the
chain more often, and 100-byte updates cost a tenth more (docs/development/performance.md)."""
_WRITE_SIZE: Final = 128 * 1024
"""Bytes of entries that are encoded and written at once: with 1 MiB, which the processor's cache
does not hold, lines take a quarter more time."""
_CLOSE_TIMEOUT: Final = 5.0

log: Final = get_logger(component="trace")


@attrs.define(eq=False, repr=False)
class TraceWriter:
    """Encodes what recorders record; `recorder()` makes the recorder of each chain.

    `listeners` get each block of lines in the thread of the writer, with whole payloads and masked
    secrets: they must not raise. `start` begins the thread.
    """

    payloads: Payloads = "full"
    listeners: list[Callable[[list[bytes]], None]] = attrs.field(factory=list, init=False)
    """To be added before a chain starts, as is `recorder_type`."""
    closers: list[Callable[[], None]] = attrs.field(factory=list, init=False)
    """Called at the end, after the last block."""
    recorder_type: Callable[[str, Callable[[Entry], None]], TraceRecorder] = attrs.field(
        default=TraceRecorder, init=False
    )
    chains: dict[TraceRecorder, tuple[TraceComponent, ...]] = attrs.field(factory=dict, init=False)
    """The components of each chain that is running."""
    encoder: Encoder = attrs.field(init=False)
    log: Logger = attrs.field(default=log, init=False)
    _heard: Encoder = attrs.field(init=False)
    """Encodes for the listeners; both encoders give a record the same number."""
    _queue: deque[tuple[Entry, int]] = attrs.field(factory=deque, init=False)
    _queued: int = attrs.field(default=0, init=False)
    """Bytes of all entries that were queued; `_written` of those that were taken."""
    _written: int = attrs.field(default=0, init=False)
    _lost: int = attrs.field(default=0, init=False)
    """Entries dropped since the start; `_loss` counts those at one place."""
    _loss: LossEntry | None = attrs.field(default=None, init=False)
    _taken: int = attrs.field(default=0, init=False)
    """Entries that are being written."""
    _awake: bool = attrs.field(default=False, init=False)
    """Whether the thread waits for more to write; `_has_enough` whether it need not."""
    _has_enough: bool = attrs.field(default=False, init=False)
    _wake: threading.Event = attrs.field(factory=threading.Event, init=False)
    _closing: bool = attrs.field(default=False, init=False)
    _thread: threading.Thread | None = attrs.field(default=None, init=False)
    _failed: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.encoder = Encoder(self.payloads)
        self._heard = self.encoder if self.payloads == "full" else Encoder("full")

    def start(self) -> None:
        """Begin to write."""
        self._thread = threading.Thread(target=self._run, name="trace", daemon=True)
        self._thread.start()

    def recorder(self, chain: str) -> TraceRecorder:
        """A recorder for a chain of this name."""
        return self.recorder_type(chain, self._put)

    def ended(self, recorder: TraceRecorder) -> None:
        """The chain of this recorder has ended."""
        self.chains.pop(recorder, None)

    def flush(self) -> None:
        """Wait until what is queued now is written, for up to five seconds."""
        end = time.monotonic() + _CLOSE_TIMEOUT
        while self._written < self._queued and time.monotonic() < end:
            time.sleep(_DELAY / 10)

    def linger(self) -> None:
        """Called at the end of a single turn: a trace that is viewed waits for its reader."""

    def close(self) -> None:
        """Write what is queued, and end the thread. Waits up to five seconds."""
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_TIMEOUT)
            if self._thread.is_alive():  # the reader of a pipe does not read, or a disk is stuck
                self._lost += self._taken + len(self._queue)
        if self._lost:
            self.log.error("trace records lost: written too slowly", records=self._lost)
            self._lost = 0
        while self.closers:
            self.closers.pop()()

    # -- of a subclass, in the thread of the writer ------------------------------------------------

    def write(self, lines: bytes) -> None:
        """Write masked records. An `OSError` is logged, and ends the writing."""

    def end_writing(self) -> None:
        """Nothing more is written."""

    # -- in the thread of the chain ----------------------------------------------------------------

    def _put(self, entry: Entry) -> None:
        if self._failed and not self.listeners:
            return
        size = _ENTRY_SIZE
        if type(entry) is tuple and (payload := entry[4]) is not None:
            size += payload.size if type(payload) is NotificationBatch else len(payload)
        waiting = self._queued - self._written + size
        if waiting > _MAX_QUEUED and self._queue:
            self._lost += 1
            if self._lost == 1:
                self.log.warning("trace records dropped: written too slowly")
            loss = self._loss
            if loss is None:
                recorder = entry[1].tracer if isinstance(entry, tuple) else entry.recorder
                loss = self._loss = LossEntry(recorder, time.monotonic())
                self._queue.append((loss, 0))
            loss.count += 1
            return
        if self._loss is not None:
            self._loss = None  # those that are dropped later have another place
        self._queued += size
        self._queue.append((entry, size))
        if not self._awake:
            self._awake = True
            self._wake.set()
        elif waiting > _ENOUGH and not self._has_enough:
            self._has_enough = True
            self._wake.set()

    # -- in the thread of the writer ---------------------------------------------------------------

    def _run(self) -> None:
        block_signals()
        try:
            while not self._closing:
                self._wake.wait()
                if not self._closing:
                    self._wake.clear()
                    if not self._has_enough:
                        self._wake.wait(_DELAY)
                self._wake.clear()
                self._awake = self._has_enough = False
                self._write_queued()
            self._write_queued()
        finally:
            self._failed = True
            self.end_writing()

    def _write_queued(self) -> None:
        while self._queue:
            entries, size = self._take()
            lines = self.encoder.encode(entries)
            self._write(lines)
            if self.listeners:
                if self._heard is not self.encoder:
                    lines = self._heard.encode(entries)
                heard = lines.splitlines(keepends=True)
                for listener in self.listeners:
                    listener(heard)
            self._written += size
            self._taken = 0

    def _take(self) -> tuple[list[Entry], int]:
        """Entries for one write, and their size."""
        entries: list[Entry] = []
        size = 0
        while self._queue and size < _WRITE_SIZE:
            entry, entry_size = self._queue.popleft()
            size += entry_size
            entries.append(entry)
            if isinstance(entry, StartEntry):
                self.chains[entry.recorder] = entry.components
            elif entry is self._loss:
                self._loss = None
        self._taken = len(entries)
        return entries, size

    def _write(self, lines: bytes) -> None:
        if not self._failed:
            try:
                self.write(lines)
            except OSError as exc:
                self.log.error("trace ended", error=str(exc))
                self._failed = True
