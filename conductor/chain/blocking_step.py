"""Duration of the running step of the event loop, for the watchdog's thread.

A step is what a task runs between two awaits; in a task of a plugin's lane, a step may call several
handlers, each counts by itself. The thread samples the loop's stack: as long as it finds the same
step, the time counts; another step, or a loop that waits for events, is progress. So thousands of
handlers that end in one turn of the loop may take as long as they need.

Time in which the process is stopped (SIGSTOP, suspend), or in which the loop's thread is ready to
run but has no processor, does not count: on a busy machine nothing blocks, it is only slow.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

import msgspec

from conductor.chain.blocking_log import is_waiting
from conductor.plugins.plugin_code import plugin_code

__all__ = ["BlockingStep", "RunningClock"]


class BlockingStep(msgspec.Struct, eq=False):
    """The step that the loop runs; `look` is called repeatedly."""

    _frame: Callable[[], FrameType | None]
    """The innermost frame of the loop's thread."""
    seconds: float = 0.0
    """Time between the first and the last look at the present step."""
    is_plugin: bool = False
    """Whether code of a plugin ran at the last look."""
    _step: tuple[int, object] | None = None

    def look(self, seconds: float) -> None:
        """Look at the loop, `seconds` of running time after the last look."""
        frame = self._frame()
        code = plugin_code(frame)
        self.is_plugin = code is not None
        step: tuple[int, object] | None = None
        if frame is not None and not is_waiting(frame):
            # A reference to the frame would keep its objects, and end them in this thread.
            step = (id(_outermost(frame)), None if code is None else code.call.of)
        self.seconds = self.seconds + seconds if step and step == self._step else 0.0
        self._step = step


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


def _outermost(frame: FrameType) -> FrameType:
    """The outermost frame inside of trio's loop: that of a task's coroutine."""
    while (outer := frame.f_back) is not None:
        if outer.f_code.co_name == "unrolled_run":
            break
        frame = outer
    return frame


def _seconds_queued(thread: int) -> float:
    """For how long a thread was ready to run and had no processor; 0 if the kernel does not say."""
    with suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[1]) / 1e9
    return 0.0
