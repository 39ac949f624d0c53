"""Watchdog thread: exits the process when a plugin blocks the event loop during shutdown.

A plugin in this process can block the loop (`time.sleep`, an endless computation), so that neither
a signal nor EOF on stdin is handled. Once a shutdown is requested, by a signal or because the
client has closed its end, a thread pings the loop repeatedly until the process ends. If the loop
does not reply within the timeout, all child processes are killed and the process exits. A second
request reduces the timeout to one second.

Not covered: C code that never releases the interpreter lock, since the thread cannot run then.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, NoReturn

import trio

from conductor.log import get_logger
from conductor.transport.process_tree import kill_descendants

__all__ = ["Watchdog", "max_stop_seconds", "watchdog"]

_MIN_TIMEOUT: Final = 5.0
"""Seconds that the loop has at least: it may import modules on a busy machine."""
_SECOND_REQUEST_TIMEOUT: Final = 1.0
_POLL_INTERVAL: Final = 0.5
"""Seconds between a reply and the next ping."""
_LOGGED_FRAMES: Final = 4
"""Number of innermost frames of the blocked thread that are logged."""

log = get_logger(component="conductor")


def max_stop_seconds(stop_timeout: float) -> float:
    """An upper bound, in seconds, for an ordered stop of a chain in which all components end."""
    return 4 * stop_timeout + 10


class Watchdog:
    """Pings the event loop of the thread that creates it, once a shutdown is requested.

    `stop_timeout` is the time for a reply in seconds, at least 5.
    """

    def __init__(self, stop_timeout: float, before_exit: Callable[[], None]):
        self._timeout = max(stop_timeout, _MIN_TIMEOUT)
        self._signal = 0
        self._before_exit = before_exit
        self._token = trio.lowlevel.current_trio_token()
        self._loop_thread = threading.get_ident()
        self._deadline = float("inf")
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def start(self, client_fd: int | None) -> None:
        """Start the thread; a hang-up of `client_fd` is a request for shutdown."""
        thread = threading.Thread(target=self._watch, args=(client_fd,), daemon=True)
        thread.start()

    def on_signal(self, number: int) -> None:
        """Request a shutdown; the second call shortens the timeout. Safe in a signal handler."""
        self._signal = self._signal or number
        self._notify(b"e")

    def end_within(self, seconds: float) -> None:
        """Exit the process after this time even if the loop replies."""
        self._deadline = time.monotonic() + seconds
        self._notify(b"d")

    def _notify(self, what: bytes) -> None:
        with suppress(OSError):  # pipe full: the thread has enough to read
            os.write(self._write, what)

    def _watch(self, client_fd: int | None) -> None:
        # A signal delivered to this thread would not interrupt a `time.sleep` of the main thread,
        # where the handlers run.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        if client_fd is not None:
            poll.register(client_fd, getattr(select, "POLLRDHUP", 0))  # POLLHUP is always included
        end_requests = 0
        ready = [fd for fd, _ in poll.poll()]
        if client_fd is not None:
            poll.unregister(client_fd)
        if self._read in ready:
            end_requests += os.read(self._read, 64).count(b"e")
        while True:
            ping_time = time.monotonic()
            try:
                self._token.run_sync_soon(self._notify, b"p")
            except trio.RunFinishedError:
                return
            replied = False
            while not replied:
                timeout = _SECOND_REQUEST_TIMEOUT if end_requests > 1 else self._timeout
                left = min(ping_time + timeout, self._deadline) - time.monotonic()
                if left <= 0:
                    self._exit()
                if poll.poll(left * 1000):
                    read = os.read(self._read, 64)
                    end_requests += read.count(b"e")
                    replied = b"p" in read
            if poll.poll(_POLL_INTERVAL * 1000):
                end_requests += os.read(self._read, 64).count(b"e")

    def _exit(self) -> NoReturn:
        import traceback

        try:
            frame = sys._current_frames().get(self._loop_thread)
            stack = traceback.extract_stack(frame)[-_LOGGED_FRAMES:]
            where = " > ".join(f"{each.filename}:{each.lineno}" for each in stack)
            log.error("event loop blocked by a plugin: process killed", busy_at=where)
            self._before_exit()
        finally:
            kill_descendants()
            os._exit(128 + self._signal if self._signal else 1)


@contextmanager
def watchdog(
    stop_timeout: float,
    signals: Sequence[int],
    *,
    client_fd: int | None = None,
    before_exit: Callable[[], None] = lambda: None,
) -> Iterator[Watchdog]:
    """Run a watchdog during the block, which must be inside of `trio.open_signal_receiver`.

    `before_exit` is called in the thread before the process exits, with code 128 + n after signal
    n, or 1 after a hang-up of `client_fd`.
    """
    watchdog_thread = Watchdog(stop_timeout, before_exit)
    watchdog_thread.start(client_fd)
    receivers = {number: signal.getsignal(number) for number in signals}

    def handle(number: int, frame: FrameType | None) -> None:
        watchdog_thread.on_signal(number)
        receiver = receivers[number]
        if callable(receiver):
            receiver(number, frame)

    for number in signals:
        signal.signal(number, handle)
    try:
        yield watchdog_thread
    finally:
        for number, receiver in receivers.items():
            signal.signal(number, receiver)
