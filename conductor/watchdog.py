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
from conductor.transport.process import kill_descendants

__all__ = ["Watchdog", "longest_stop", "watchdog"]

_SHORTEST: Final = 5.0
"""Seconds that the loop always has: it may import something, on a busy machine."""
_HURRIED: Final = 1.0
_PAUSE: Final = 0.5
"""Seconds between two questions."""
_FRAMES: Final = 4
"""Of the innermost frames of the blocked thread, so many are logged."""

log = get_logger(component="conductor")


def longest_stop(stop_timeout: float) -> float:
    """An upper bound, in seconds, for an ordered stop of a chain whose components all end."""
    return 4 * stop_timeout + 10


class Watchdog:
    """Watches the event loop of the thread that makes it, once the end is asked for."""

    def __init__(self, stop_timeout: float, put_back: Callable[[], None]):
        self._patience = max(stop_timeout, _SHORTEST)
        self._signal = 0
        self._put_back = put_back
        self._token = trio.lowlevel.current_trio_token()
        self._loop_thread = threading.get_ident()
        self._deadline = float("inf")
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def start(self, client_fd: int | None) -> None:
        """Begin to watch; `client_fd` hangs up when the client is gone."""
        thread = threading.Thread(target=self._watch, args=(client_fd,), daemon=True)
        thread.start()

    def signalled(self, number: int) -> None:
        """The end is asked for; a second time: at once. For a signal handler."""
        self._signal = self._signal or number
        self._tell(b"e")

    def end_within(self, seconds: float) -> None:
        """The process has to end within this time, whatever its loop answers."""
        self._deadline = time.monotonic() + seconds
        self._tell(b"d")

    def _tell(self, what: bytes) -> None:
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
        asked = 0
        ready = [fd for fd, _ in poll.poll()]
        if client_fd is not None:
            poll.unregister(client_fd)
        if self._read in ready:
            asked += os.read(self._read, 64).count(b"e")
        while True:
            question = time.monotonic()
            try:
                self._token.run_sync_soon(self._tell, b"p")
            except trio.RunFinishedError:
                return
            answered = False
            while not answered:
                patience = _HURRIED if asked > 1 else self._patience
                left = min(question + patience, self._deadline) - time.monotonic()
                if left <= 0:
                    self._leave()
                if poll.poll(left * 1000):
                    said = os.read(self._read, 64)
                    asked += said.count(b"e")
                    answered = b"p" in said
            if poll.poll(_PAUSE * 1000):
                asked += os.read(self._read, 64).count(b"e")

    def _leave(self) -> NoReturn:
        import traceback

        try:
            frame = sys._current_frames().get(self._loop_thread)
            stack = traceback.extract_stack(frame)[-_FRAMES:]
            where = " > ".join(f"{each.filename}:{each.lineno}" for each in stack)
            log.error("a plugin does not let the process end; it is ended now", busy_at=where)
            self._put_back()
        finally:
            kill_descendants()
            os._exit(128 + self._signal if self._signal else 1)


@contextmanager
def watchdog(
    stop_timeout: float,
    signals: Sequence[int],
    *,
    client_fd: int | None = None,
    put_back: Callable[[], None] = lambda: None,
) -> Iterator[Watchdog]:
    """Watch for as long as the block lasts, which is inside of `trio.open_signal_receiver`.

    `put_back` is called before the process is ended, which exits with 128 + n after signal n, and
    with 1 where the client has hung up.
    """
    dog = Watchdog(stop_timeout, put_back)
    dog.start(client_fd)
    receivers = {number: signal.getsignal(number) for number in signals}

    def handle(number: int, frame: FrameType | None) -> None:
        dog.signalled(number)
        receiver = receivers[number]
        if callable(receiver):
            receiver(number, frame)

    for number in signals:
        signal.signal(number, handle)
    try:
        yield dog
    finally:
        for number, receiver in receivers.items():
            signal.signal(number, receiver)
