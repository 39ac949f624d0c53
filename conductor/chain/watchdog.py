"""Watchdog thread: logs what blocks the event loop, and exits the process if it does not stop.

A plugin in this process can block the loop (`time.sleep`, an endless computation), so that neither
a signal nor EOF on stdin is handled. Until a shutdown is requested, by a signal or because the
client has closed its end, this is logged (`blocking_log`); a command may limit it (`max_blocked`).
From then on the thread pings the loop repeatedly until the process ends. If the loop does not reply
because one handler runs for longer than the timeout, or other code does, all child processes are
killed and the process exits; answers that are ready are written before. A second request reduces
the timeout to one second. Time in which the process is stopped (SIGSTOP, suspend), or in which the
loop's thread is ready to run but has no processor, does not count: on a busy machine nothing
blocks, it is only slow.

The thread cannot run while C code holds the interpreter lock. Regular expressions do, but they run
signal handlers: an alarm after each quarter of a second of CPU time lets the thread run if the loop
is still in the same call, and after a signal another one does so each second. Not covered: other C
code that holds the lock.
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
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

import trio

from conductor.chain.blocking_log import INTERVAL, BlockingLog, blocked_by
from conductor.log import get_logger
from conductor.plugins.plugin_code import plugin_code
from conductor.transport.process_tree import kill_descendants
from conductor.transport.thread_signals import block_signals

__all__ = ["RunningClock", "Watchdog", "max_stop_seconds", "watchdog"]

_MIN_TIMEOUT: Final = 1.0
_MIN_TIMEOUT_OF_OTHERS: Final = 5.0
"""Seconds that the loop has at least while no code of a plugin runs: the conductor may import
modules on a busy machine."""
_SECOND_REQUEST_TIMEOUT: Final = 1.0
_ALARM_INTERVAL: Final = 1.0
"""Seconds between two alarms after a signal."""
_CPU_INTERVAL: Final = 0.25
"""Seconds of CPU time between two alarms; an idle process has none."""
_ALARM_PAUSE: Final = 0.02
"""Seconds for which a signal handler lets the thread run."""
_JOIN_TIMEOUT: Final = 1.0
_STOP: Final = b"q"
_POLL_INTERVAL: Final = 0.5
"""Seconds between a reply and the next ping."""
_LOOK_INTERVAL: Final = 0.1
"""Seconds between two looks at a loop that has not replied yet."""

log: Final = get_logger(component="conductor")


def max_stop_seconds(stop_timeout: float) -> float:
    """An upper bound, in seconds, for an ordered stop of a chain in which all components end."""
    return 4 * stop_timeout + 10


class Watchdog:
    """Watches the event loop of the thread that creates it.

    Once a shutdown is requested, a plugin may block the loop for `stop_timeout` seconds, at least
    1, in which the loop's thread runs or sleeps; before, for `max_blocked` seconds, at least 1;
    `None`: for ever.
    """

    def __init__(
        self,
        stop_timeout: float,
        before_exit: Callable[[], None],
        max_blocked: float | None = None,
    ):
        self._stop_timeout = max(stop_timeout, _MIN_TIMEOUT)
        self._max_blocked = inf if max_blocked is None else max(max_blocked, _MIN_TIMEOUT)
        self._signals: list[int] = []
        self._exiting = False
        self._last_place = (0, 0)
        """Frame and instruction at the last alarm of CPU time."""
        self._before_exit = before_exit
        self._token = trio.lowlevel.current_trio_token()
        self._loop_thread = threading.get_ident()
        self._loop_thread_in_kernel = threading.get_native_id()
        self._deadline = float("inf")
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def start(self, client_fd: int | None) -> None:
        """Start the thread; a hang-up of `client_fd` is a request for shutdown."""
        self._thread = threading.Thread(target=self._watch, args=(client_fd,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; waits until it has logged a blocking that has just ended."""
        self._notify(_STOP)
        self._thread.join(_JOIN_TIMEOUT)

    def on_signal(self, number: int) -> None:
        """Request a shutdown; the second call shortens the timeout. For a signal handler."""
        self._signals.append(number)
        self._notify(b"e")

    def let_thread_run(self) -> None:
        """Release the interpreter lock for a moment, or until the process ends if the thread is
        ending it. For a signal handler."""
        time.sleep(_ALARM_PAUSE)
        while self._exiting:
            time.sleep(_ALARM_PAUSE)

    def on_cpu_time(self, _: int, frame: FrameType | None) -> None:
        """Let the thread run if the loop is in the same call at the last alarm. For a signal
        handler."""
        place = (id(frame), frame.f_lasti if frame is not None else 0)
        if place == self._last_place:
            self.let_thread_run()
        self._last_place = place

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
        block_signals()
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        if client_fd is not None:
            poll.register(client_fd, getattr(select, "POLLRDHUP", 0))  # POLLHUP is always included
        blocking_log = BlockingLog(self._frame, self._ping, log)
        with suppress(trio.RunFinishedError):
            if self._log_blockings(poll, blocking_log):
                if client_fd is not None:
                    poll.unregister(client_fd)
                self._wait_for_end(poll, blocking_log)

    def _ping(self) -> None:
        self._token.run_sync_soon(self._notify, b"p")

    def _log_blockings(self, poll: select.poll, blocking_log: BlockingLog) -> bool:
        """Log what blocks the loop until a shutdown is requested; false if the block has ended."""
        while True:
            begin, cpu = time.monotonic(), time.process_time()
            ready = poll.poll(INTERVAL * 1000)
            read = os.read(self._read, 64) if (self._read, select.POLLIN) in ready else b""
            # A stopped process (SIGSTOP, suspend) blocks nothing: what counts beyond the interval
            # is CPU time.
            spent = min(time.monotonic() - begin, INTERVAL + time.process_time() - cpu)
            blocking_log.look(spent, replied=b"p" in read or _STOP in read)
            if blocking_log.seconds_of_plugin >= self._max_blocked:
                self._exit(blocking_log.seconds_of_plugin)
            if _STOP in read:
                return False
            if len(ready) > bool(read) or read.strip(b"p"):
                return True

    def _frame(self) -> FrameType | None:
        """The innermost frame of the loop's thread, below signal handlers of this module."""
        frame = sys._current_frames().get(self._loop_thread)
        while frame is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        return frame

    def _wait_for_end(self, poll: select.poll, blocking_log: BlockingLog) -> None:
        """Ping the loop until it ends; exit the process if it is blocked for too long.

        The end of a blocking that began before is logged.
        """
        last = time.monotonic()
        running, clock = 0.0, RunningClock(self._loop_thread_in_kernel)
        while True:
            self._ping()
            blocked, read = 0.0, b""
            call: object = None
            while b"p" not in read and _STOP not in read:
                left = max(0.0, min(_LOOK_INTERVAL, self._deadline - time.monotonic()))
                if poll.poll(left * 1000):
                    read = os.read(self._read, 64)
                seconds = clock.spent(left)
                running += seconds
                code = plugin_code(self._frame())
                before, call = call, None if code is None else code.call
                blocked = blocked + seconds if call is before else 0.0  # else there is progress
                is_over = time.monotonic() >= self._deadline
                if is_over or blocked >= self._timeout(of_plugin=code is not None):
                    self._exit(running)
            blocking_log.look(time.monotonic() - last, replied=True)
            last = time.monotonic()
            if _STOP not in read and poll.poll(_POLL_INTERVAL * 1000):
                read = os.read(self._read, 64)
            running += clock.spent(_POLL_INTERVAL)
            if _STOP in read:
                return

    def _timeout(self, *, of_plugin: bool) -> float:
        """For how many seconds the loop may be blocked during a shutdown."""
        if len(self._signals) > 1:
            return min(self._stop_timeout, _SECOND_REQUEST_TIMEOUT)
        return self._stop_timeout if of_plugin else max(self._stop_timeout, _MIN_TIMEOUT_OF_OTHERS)

    def _exit(self, seconds: float) -> NoReturn:
        """Exit the process; `seconds` of running time since the stop or the blocking began."""
        self._exiting = True
        try:
            where = blocked_by(self._frame())
            log.error("event loop blocked: process killed", **where, seconds=round(seconds, 1))
            # From its next instruction on, the loop's thread waits in `let_thread_run`.
            signal.pthread_kill(self._loop_thread, signal.SIGALRM)
            self._before_exit()
        finally:
            kill_descendants()
            os._exit(128 + self._signals[0] if self._signals else 1)


class RunningClock:
    """Time in which a thread runs or sleeps: wall time, but for that without a processor.

    `thread` is its id in the kernel.
    """

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._last = self._now()

    def spent(self, longest: float) -> float:
        """Seconds since the last call. Between both, the caller has slept for up to `longest`: of
        the time beyond, only CPU time counts."""
        now = self._now()
        wall, cpu, queued = (new - old for new, old in zip(now, self._last, strict=True))
        self._last = now
        return max(0.0, min(wall - queued, longest + cpu))

    def _now(self) -> tuple[float, float, float]:
        return time.monotonic(), time.process_time(), _seconds_queued(self._thread)


def _seconds_queued(thread: int) -> float:
    """For how long a thread was ready to run and had no processor; 0 if the kernel does not say."""
    with suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


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
        signal.setitimer(signal.ITIMER_REAL, _ALARM_INTERVAL, _ALARM_INTERVAL)
        watchdog_thread.let_thread_run()
        receiver = receivers[number]
        if callable(receiver):
            receiver(number, frame)

    for number in signals:
        signal.signal(number, handle)
    alarm_receiver = signal.signal(signal.SIGALRM, lambda *_: watchdog_thread.let_thread_run())
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
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, alarm_receiver)
