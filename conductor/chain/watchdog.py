"""Ends the process although the event loop does not: for plugins that block it.

A plugin in this process can block the loop (`time.sleep`, an endless computation), so that neither
a signal nor the end of stdin is noticed. A thread watches instead. Once the end is asked for, by a
signal or because the client has hung up, the loop has to answer the thread within a time, again and
again until the process ends; when it does not, everything that was started is killed and the
process exits. A second request for the end shortens that time to one second.

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
"""Seconds that the loop always has: it may import something, on a busy machine."""
_SECOND_REQUEST_TIMEOUT: Final = 1.0
_POLL_INTERVAL: Final = 0.5
"""Seconds between two questions."""
_LOGGED_FRAMES: Final = 4
"""Of the innermost frames of the blocked thread, so many are logged."""

log = get_logger(component="conductor")


def max_stop_seconds(stop_timeout: float) -> float:
    """An upper bound, in seconds, for an ordered stop of a chain whose components all end."""
    return 4 * stop_timeout + 10


class Watchdog:
    """Watches the event loop of the thread that makes it, once the end is asked for."""

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
        """Begin to watch; `client_fd` hangs up when the client is gone."""
        thread = threading.Thread(target=self._watch, args=(client_fd,), daemon=True)
        thread.start()

    def on_signal(self, number: int) -> None:
        """The end is asked for; a second time: at once. For a signal handler."""
        self._signal = self._signal or number
        self._notify(b"e")

    def end_within(self, seconds: float) -> None:
        """The process has to end within this time, whatever its loop answers."""
        self._deadline = time.monotonic() + seconds
        self._notify(b"d")

    def _notify(self, what: bytes) -> None:
        with suppress(OSError):  # full: it has been told often enough
            os.write(self._write, what)

    def _watch(self, client_fd: int | None) -> None:
        # One that came to this thread would not interrupt a `time.sleep` of the main thread, where
        # the handlers run.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        if client_fd is not None:
            poll.register(client_fd, getattr(select, "POLLRDHUP", 0))  # and hang-up, as always
        end_requests = 0
        ready = [fd for fd, _ in poll.poll()]
        if client_fd is not None:
            poll.unregister(client_fd)
        if self._read in ready:
            end_requests += os.read(self._read, 64).count(b"e")
        while True:
            question = time.monotonic()
            try:
                self._token.run_sync_soon(self._notify, b"p")
            except trio.RunFinishedError:
                return
            answered = False
            while not answered:
                timeout = _SECOND_REQUEST_TIMEOUT if end_requests > 1 else self._timeout
                left = min(question + timeout, self._deadline) - time.monotonic()
                if left <= 0:
                    self._exit()
                if poll.poll(left * 1000):
                    read = os.read(self._read, 64)
                    end_requests += read.count(b"e")
                    answered = b"p" in read
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
    """Watch for as long as the block lasts, which is inside of `trio.open_signal_receiver`.

    `before_exit` is called before the process is ended, which exits with 128 + n after signal n,
    and with 1 where the client has hung up.
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
