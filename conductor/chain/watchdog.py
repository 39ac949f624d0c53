"""Watchdog thread: logs what blocks the event loop, and exits the process if it does not stop.

A plugin in this process can block the loop (`time.sleep`, an endless computation), so that neither
a signal nor EOF on stdin is handled. The thread pings the loop twice a second. Code of a plugin
that keeps it from replying for a second is logged with its line; imports and other code, such as a
garbage collection, after five seconds. Once a shutdown is requested, by a signal or because the
client has closed its end, a loop that does not reply for too long ends the process: answers that
are ready are written, all child processes are killed, and the process exits.

The thread cannot run while C code holds the interpreter lock. Regular expressions do, but they run
signal handlers: an alarm after each quarter of a second of CPU time lets the thread run if the loop
is still in the same call. Not covered: other C code that holds the lock.
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
from math import inf
from types import FrameType
from typing import Final, NoReturn

import trio

from conductor.log import get_logger
from conductor.plugins.plugin_code import blocking_line
from conductor.transport.process_tree import kill_descendants
from conductor.transport.threads import block_signals

__all__ = ["Watchdog", "max_stop_seconds", "watchdog"]

_LOGGED_AFTER, _LOGGED_AFTER_OF_OTHERS = 1.0, 5.0
"""Seconds without a reply, while code of a plugin runs, and while other code does."""
_MIN_TIMEOUT: Final = 5.0
"""Seconds that the loop has at least: it may import modules on a busy machine."""
_SECOND_REQUEST_TIMEOUT: Final = 1.0
_CPU_INTERVAL: Final = 0.25
"""Seconds of CPU time between two alarms; an idle process has none."""
_ALARM_PAUSE: Final = 0.02
"""Seconds for which a signal handler lets the thread run."""
_JOIN_TIMEOUT: Final = 1.0
_POLL_INTERVAL: Final = 0.5
"""Seconds between a reply and the next ping."""
_LOOK_INTERVAL: Final = 0.1
"""Seconds between two looks at a loop that has not replied yet."""
_PING, _WAKE, _STOP = b"p", b"w", b"q"

log: Final = get_logger(component="conductor")


def max_stop_seconds(stop_timeout: float) -> float:
    """An upper bound, in seconds, for an ordered stop of a chain in which all components end."""
    return 4 * stop_timeout + 10


class Watchdog:
    """Watches the event loop of the thread that creates it.

    Once a shutdown is requested, the loop may be blocked for `stop_timeout` seconds, at least 5;
    before, for `max_blocked` seconds; `None`: for ever.
    """

    def __init__(
        self,
        stop_timeout: float,
        before_exit: Callable[[], None],
        max_blocked: float | None = None,
    ):
        self._stop_timeout = max(stop_timeout, _MIN_TIMEOUT)
        self._max_blocked = inf if max_blocked is None else max_blocked
        self._signals: list[int] = []
        self._client_has_gone = False
        self._exiting = False
        self._last_place = (0, 0)
        """Frame and instruction at the last alarm."""
        self._before_exit = before_exit
        self._token = trio.lowlevel.current_trio_token()
        self._loop_thread = threading.get_ident()
        self._deadline = inf
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def start(self, client_fd: int | None) -> None:
        """Start the thread; a hang-up of `client_fd` is a request for shutdown."""
        self._thread = threading.Thread(target=self._watch, args=(client_fd,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._notify(_STOP)
        self._thread.join(_JOIN_TIMEOUT)

    def on_signal(self, number: int) -> None:
        """Request a shutdown; the second call shortens the timeout. For a signal handler."""
        self._signals.append(number)
        self._notify(_WAKE)

    def on_cpu_time(self, _: int, frame: FrameType | None) -> None:
        """Release the interpreter lock for a moment if the loop is in the same call as at the last
        alarm, or until the process ends if the thread is ending it. For a signal handler."""
        place = (id(frame), frame.f_lasti if frame is not None else 0)
        if place == self._last_place or self._exiting:
            time.sleep(_ALARM_PAUSE)
            while self._exiting:
                time.sleep(_ALARM_PAUSE)
        self._last_place = place

    def end_within(self, seconds: float) -> None:
        """Exit the process after this time even if the loop replies."""
        self._deadline = time.monotonic() + seconds
        self._notify(_WAKE)

    def _notify(self, what: bytes) -> None:
        with suppress(OSError):  # pipe full: the thread has enough to read
            os.write(self._write, what)

    def _watch(self, client_fd: int | None) -> None:
        # A signal delivered to this thread would not interrupt a `time.sleep` of the main thread,
        # where the handlers run.
        block_signals()
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        if client_fd is not None:
            poll.register(client_fd, getattr(select, "POLLRDHUP", 0))  # POLLHUP is always included
        with suppress(trio.RunFinishedError):
            while self._wait_for_reply(poll):
                if _STOP in self._messages(poll, _POLL_INTERVAL):
                    return

    def _wait_for_reply(self, poll: select.poll) -> bool:
        """Ping the loop; log what keeps it from replying, or exit the process. False if the block
        of the watchdog has ended."""
        self._token.run_sync_soon(self._notify, _PING)
        blocked, is_logged = 0.0, False
        while True:
            begin, cpu = time.monotonic(), time.process_time()
            messages = self._messages(poll, min(_LOOK_INTERVAL, self._deadline - begin))
            if _STOP in messages:
                return False
            # A process that is stopped (SIGSTOP, suspend) or gets no processor blocks nothing: what
            # counts beyond the interval is CPU time.
            spent = time.monotonic() - begin, _LOOK_INTERVAL + time.process_time() - cpu
            if time.monotonic() >= self._deadline:
                self._exit(blocked)
            if _PING in messages:
                return True
            blocked += min(spent)
            if blocked >= self._timeout():
                self._exit(blocked)
            if blocked >= _LOGGED_AFTER and not is_logged:
                place, is_of_plugin = blocking_line(self._frame())
                if is_of_plugin or blocked >= _LOGGED_AFTER_OF_OTHERS:
                    log.warning("event loop is blocked", at=place, seconds=round(blocked, 1))
                    is_logged = True

    def _messages(self, poll: select.poll, seconds: float) -> bytes:
        """What the loop and signal handlers have written, after at most this time."""
        read = b""
        for fd, _ in poll.poll(max(0.0, seconds) * 1000):
            if fd == self._read:
                read = os.read(fd, 64)
            else:
                self._client_has_gone = True
                poll.unregister(fd)
        return read

    def _frame(self) -> FrameType | None:
        """The innermost frame of the loop's thread, below signal handlers of this module."""
        frame = sys._current_frames().get(self._loop_thread)
        while frame is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        return frame

    def _timeout(self) -> float:
        """For how many seconds the loop may be blocked now."""
        if len(self._signals) > 1:
            return _SECOND_REQUEST_TIMEOUT
        return self._stop_timeout if self._signals or self._client_has_gone else self._max_blocked

    def _exit(self, seconds: float) -> NoReturn:
        """Exit the process, whose loop has been blocked for this time."""
        self._exiting = True
        try:
            place, _ = blocking_line(self._frame())
            log.error("event loop blocked: process killed", at=place, seconds=round(seconds, 1))
            # From its next instruction on, the loop's thread waits in `on_cpu_time`.
            signal.pthread_kill(self._loop_thread, signal.SIGVTALRM)
            self._before_exit()
        finally:
            kill_descendants()
            os._exit(128 + self._signals[0] if self._signals else 1)


@contextmanager
def watchdog(
    stop_timeout: float,
    signals: Sequence[int],
    *,
    client_fd: int | None = None,
    max_blocked: float | None = None,
    before_exit: Callable[[], None] = lambda: None,
) -> Iterator[Watchdog]:
    """Run a watchdog during the block, which must be inside of `trio.open_signal_receiver`.

    `before_exit` is called in the thread before the process exits; the event loop does not go on
    meanwhile. The exit code is 128 + n after signal n, or 1 after a hang-up of `client_fd` or after
    `max_blocked` seconds.
    """
    watchdog_thread = Watchdog(stop_timeout, before_exit, max_blocked)
    watchdog_thread.start(client_fd)
    receivers = {number: signal.getsignal(number) for number in signals}

    def handle(number: int, frame: FrameType | None) -> None:
        watchdog_thread.on_signal(number)
        receiver = receivers[number]
        if callable(receiver):
            receiver(number, frame)

    for number in signals:
        signal.signal(number, handle)
    cpu_receiver = signal.signal(signal.SIGVTALRM, watchdog_thread.on_cpu_time)
    signal.siginterrupt(signal.SIGVTALRM, False)  # C code of plugins need not expect EINTR
    signal.setitimer(signal.ITIMER_VIRTUAL, _CPU_INTERVAL, _CPU_INTERVAL)
    try:
        yield watchdog_thread
    finally:
        watchdog_thread.stop()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, cpu_receiver)
        for number in signals:
            signal.signal(number, receivers[number])
