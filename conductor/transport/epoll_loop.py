"""What runs when trio is about to wait: functions that are due, and on Linux the epoll fast path,
which reads and writes descriptors there, without a task switch.

A task that waits for a descriptor costs trio a system call to arm it and a scheduler turn to wake
it, 15 µs together: more than the rest of a message's cost. So the I/O loops of `FdTransport`s do
not wait in trio. trio calls an instrument's `before_io_wait` when no task is runnable and it is
about to sleep. The fast path sleeps there instead, in its own epoll, which contains trio's epoll
and the peers' descriptors. Ready descriptors are read, routed and written there; the I/O loop's
task stays asleep until the end of the stream, until it has to wait for something else, or until it
is cancelled.

The rules that make it safe:
- It must not delay trio: it returns when trio's epoll is ready, when trio's timeout is over (by the
  time of its last wake-up, before the steps), and when routing has woken a task (reported by
  `task_scheduled`). In the last two cases trio would still sleep for the timeout that it has
  computed; `run_sync_soon` of a no-op prevents that.
- So a step that moves a deadline forward must also wake a task: the deadline alone has no effect
  on the computed timeout. (No step does: steps set an event, and the woken task sets the deadline.)
- If trio never sleeps, the descriptors are polled once per scheduler turn.
- Nothing is raised here, or trio would remove this instrument and the descriptors would not be
  served. An exception of a step is raised in its task; one that a signal handler raises between
  steps ends the run, as it does when trio itself waits.

Everything here uses trio's public interface, except for the descriptor of its epoll, which is found
in `/proc/self/fd`. If it is not found, `EpollFastPath.installed` installs nothing, and the I/O
loops wait in trio (`transport.io_loop`): the same behaviour at twice the CPU for a round trip.
`ACP_CONDUCTOR_EPOLL=off` in the environment has the same effect.
"""

from __future__ import annotations

import os
import select
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, Final, NoReturn

import msgspec
import outcome
import trio

from conductor.log import get_logger
from conductor.transport.threads import wake_up_of_thread

__all__ = ["EpollFastPath", "Step", "current_fast_path", "due_before_wait"]

log: Final = get_logger(component="conductor")
_NO_TIMEOUT: Final = 3600.0
"""Seconds; a longer timeout means that trio has no deadline."""
_caller: trio.lowlevel.RunVar[DueCalls | None] = trio.lowlevel.RunVar("due_calls", default=None)

Step = Callable[[], bool]
"""Reads or writes without waiting; true if the waiting task has to continue."""


class _Waiter(msgspec.Struct, frozen=True, eq=False):
    """A sleeping task, and the step to run for it, in its context."""

    task: trio.lowlevel.Task
    step: Step


class DueCalls(trio.abc.Instrument):
    """Calls the functions that are due when a trio run is about to wait for I/O."""

    def __init__(self) -> None:
        self.due: deque[Callable[[], object]] = deque()
        self._token = trio.lowlevel.current_trio_token()
        self._woken: deque[trio.lowlevel.Task] = deque(maxlen=1)
        """A task that trio has woken since it was about to wait."""
        self.task_scheduled: Callable[[trio.lowlevel.Task], None] = self._woken.append  # type: ignore[assignment]

    def before_io_wait(self, timeout: float) -> None:
        self._woken.clear()
        try:
            while self.due:
                self.due.popleft()()
        except BaseException as exc:
            self._token.run_sync_soon(_raise, exc)
        if self._woken:  # trio would sleep nevertheless
            self._token.run_sync_soon(bool, idempotent=True)


class EpollFastPath(DueCalls):
    """Serves the descriptors of one trio run, while it is `installed`."""

    def __init__(self, trio_epoll: int) -> None:
        super().__init__()
        self._trio_epoll = trio_epoll
        self._epoll = select.epoll()
        self._epoll.register(trio_epoll, select.EPOLLIN)
        self._waiters: dict[int, _Waiter] = {}
        self._wake_up = wake_up_of_thread()
        self._expired_timeout = 0.0
        """The last timeout that expired, in seconds."""

    @classmethod
    @contextmanager
    def installed(cls) -> Iterator[None]:
        """Serve the descriptors of this trio run inside the block, if the system supports it.

        All tasks in `sleep` must have ended before the block ends. Not for trio's guest mode.
        """
        trio_epoll_fd = _epoll_of_trio() if os.environ.get("ACP_CONDUCTOR_EPOLL") != "off" else None
        if trio_epoll_fd is None:
            _log_unavailable()
            yield
            return
        fast_path = cls(trio_epoll_fd)
        if (before := _caller.get()) is not None:
            fast_path.due = before.due
        trio.lowlevel.add_instrument(fast_path)
        _caller.set(fast_path)
        try:
            yield
        finally:
            _caller.set(before)
            trio.lowlevel.remove_instrument(fast_path)
            fast_path._epoll.close()

    async def sleep(self, fd: int, events: int, step: Step) -> None:
        """Call `step` whenever one of the epoll `events` is ready, until it returns true."""
        waiter = _Waiter(trio.lowlevel.current_task(), step)
        self._epoll.register(fd, events)
        self._waiters[fd] = waiter

        def abort(_: Any) -> trio.lowlevel.Abort:
            self._forget(fd)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def pause(self, fd: int) -> bool:
        """Stop polling a descriptor; its task stays asleep. Whether a task sleeps for it."""
        if fd not in self._waiters:
            return False
        self._epoll.unregister(fd)
        return True

    def resume(self, fd: int, events: int) -> None:
        """Poll a descriptor for these events again."""
        if fd in self._waiters:
            self._epoll.register(fd, events)

    def closing(self, fd: int) -> None:
        """Wake the task that sleeps for a descriptor, before the descriptor is closed."""
        waiter = self._waiters.get(fd)
        if waiter is not None:
            self._wake(fd, waiter, outcome.Value(None))

    # -- Instrument --------------------------------------------------------------------------------

    def before_io_wait(self, timeout: float) -> None:
        try:
            if not self._serve_for(timeout):
                return
        except BaseException as exc:
            self._token.run_sync_soon(_raise, exc)
        else:
            self._token.run_sync_soon(bool, idempotent=True)

    # ----------------------------------------------------------------------------------------------

    def _serve_for(self, timeout: float) -> bool:
        """Serve until trio has work; true if trio would sleep nevertheless."""
        poll = self._epoll.poll
        self._woken.clear()
        while self.due:
            self.due.popleft()()
        if timeout <= 0:
            if events := poll(0):
                self._serve(events, monotonic())
            return False
        end = monotonic() + timeout
        left = timeout
        while not self._woken:
            if left <= 0:
                return not self._trio_waits_for_idle(timeout)
            events = poll(left)
            now = monotonic()
            if self._serve(events, now) and not self._woken:
                return False
            left = end - now
        return True

    def _serve(self, events: list[tuple[int, int]], now: float) -> bool:
        """Run the steps of ready descriptors; true if trio's epoll is ready too."""
        trio_is_ready, due = False, self.due
        self._wake_up.time = now
        for fd, _ in events:
            waiter = self._waiters.get(fd)
            if waiter is None:
                trio_is_ready |= fd == self._trio_epoll
                continue
            try:
                goes_on = not waiter.task.context.run(waiter.step)
                while due:
                    due.popleft()()
                if goes_on:
                    continue
                result: outcome.Outcome[None] = outcome.Value(None)
            except BaseException as exc:
                result = outcome.Error(exc)
            self._wake(fd, waiter, result)
        self._wake_up.time = 0.0
        return trio_is_ready

    def _trio_waits_for_idle(self, timeout: float) -> bool:
        """Whether trio repeats the same timeout, and not because of a deadline.

        Then it waits for idleness (`wait_all_tasks_blocked`, an autojump clock), and waking it
        would prevent that. Only tests wait for idleness.
        """
        before, self._expired_timeout = self._expired_timeout, timeout
        if timeout != before or timeout > _NO_TIMEOUT:
            return False
        return trio.lowlevel.current_statistics().seconds_to_next_deadline > 0

    def _wake(self, fd: int, waiter: _Waiter, result: outcome.Outcome[None]) -> None:
        if self._waiters.get(fd) is waiter:
            self._forget(fd)
            trio.lowlevel.reschedule(waiter.task, result)

    def _forget(self, fd: int) -> None:
        del self._waiters[fd]
        with suppress(OSError):
            self._epoll.unregister(fd)


def current_fast_path() -> EpollFastPath | None:
    """The epoll fast path of this trio run; `None` without one."""
    caller = _caller.get()
    return caller if isinstance(caller, EpollFastPath) else None


def due_before_wait() -> deque[Callable[[], object]]:
    """Functions that are called once, before this trio run waits for I/O."""
    caller = _caller.get()
    if caller is None:
        caller = DueCalls()
        trio.lowlevel.add_instrument(caller)
        _caller.set(caller)
    return caller.due


def _epoll_of_trio() -> int | None:
    """The descriptor of trio's epoll; `None` if this process has none or several."""
    trio_epoll_fd = []
    if sys.platform == "linux":
        with suppress(OSError):
            for name in os.listdir("/proc/self/fd"):
                with suppress(OSError):
                    if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventpoll]":
                        trio_epoll_fd.append(int(name))
    return trio_epoll_fd[0] if len(trio_epoll_fd) == 1 else None


def _log_unavailable() -> None:
    if os.environ.get("ACP_CONDUCTOR_EPOLL") == "off":
        log.debug("epoll fast path switched off")
    elif sys.platform == "linux":
        log.warning("epoll fast path unavailable: trio's epoll descriptor was not identified")
    else:
        log.info("epoll fast path unavailable: needs Linux")


def _raise(exc: BaseException) -> NoReturn:
    raise exc
