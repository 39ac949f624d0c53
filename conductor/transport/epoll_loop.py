"""Epoll fast path: reads and writes descriptors when trio is about to wait, without a task switch.

Linux only.

A task that waits for a descriptor costs trio a system call to arm it and a turn of the scheduler to
wake it, 15 µs together: more than a message costs otherwise. So the I/O loops of `FdTransport`s do
not wait in trio. trio calls an instrument's `before_io_wait` when nothing is left to run and it is
about to sleep; we sleep there in its place, in an epoll of our own, in which trio's epoll is a
member beside the peers' descriptors. What is ready is read, routed and written there and then; the
pump's task sleeps on, and is woken at the end of the stream, when it is to wait for something else,
and by its cancellation.

The rules that make it safe:
- trio must not be kept from running: we return when its epoll is ready, when its timeout is over,
  and when what we routed has woken a task (trio says so by `task_scheduled`). In the last two cases
  trio would still sleep, for the timeout that it had worked out before; `run_sync_soon` of nothing
  keeps it awake.
- So a step that brings a deadline forward has to wake a task that waits for it: that alone has no
  effect. (None does: steps set an event, and the task that wakes sets the deadline.)
- A trio that is never about to sleep still gives us one look at each of its turns.
- Nothing is raised here, or trio would remove this instrument and the descriptors would not be
  served. An exception belongs to the task in which it was raised; one that a signal handler raises
  between steps ends the run, as it does when trio itself waits.

Everything here is trio's public interface, but for the descriptor of its epoll, which the list of
our open files tells. Where that is not to be had, `EpollFastPath.installed` installs nothing, and
the I/O loops wait in trio (`transport.io_loop`): the same behaviour, with twice the CPU for a round
trip. So they do with `ACP_CONDUCTOR_PLANE=off` in the environment.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, Final, NoReturn

import attrs
import outcome
import trio

from conductor.log import get_logger

__all__ = ["EpollFastPath", "Step", "current_fast_path"]

log = get_logger(component="conductor")
_NO_TIMEOUT: Final = 3600.0
"""trio has no word for it; a timeout of more seconds than this is that."""
_current: trio.lowlevel.RunVar[EpollFastPath | None] = trio.lowlevel.RunVar("plane", default=None)

Step = Callable[[], bool]
"""Does what can be done now; true when the task that waits is to go on."""


@attrs.frozen(eq=False, repr=False)
class _Waiter:
    """A task, and what is done for it meanwhile, in its context."""

    task: trio.lowlevel.Task
    step: Step


class EpollFastPath(trio.abc.Instrument):
    """Serves the descriptors of one trio run, while it is `installed`."""

    def __init__(self, trio_epoll: int) -> None:
        self._trio_epoll = trio_epoll
        self._epoll = select.epoll()
        self._epoll.register(trio_epoll, select.EPOLLIN)
        self._token = trio.lowlevel.current_trio_token()
        self._waiters: dict[int, _Waiter] = {}
        self._woken = False
        self._expired_timeout = 0.0
        """The timeout that was last over."""

    @classmethod
    @contextmanager
    def installed(cls) -> Iterator[None]:
        """Serve the descriptors of this run from here, where the system can do that.

        All sleeping tasks have to be gone before the end. Not for a trio that is another loop's
        guest.
        """
        trio_epoll_fd = _epoll_of_trio() if os.environ.get("ACP_CONDUCTOR_PLANE") != "off" else None
        if trio_epoll_fd is None:
            _log_unavailable()
            yield
            return
        fast_path = cls(trio_epoll_fd)
        trio.lowlevel.add_instrument(fast_path)
        _current.set(fast_path)
        try:
            yield
        finally:
            _current.set(None)
            trio.lowlevel.remove_instrument(fast_path)
            fast_path._epoll.close()

    async def sleep(self, fd: int, events: int, step: Step) -> None:
        """Sleep; call `step` whenever one of the events is due, until it returns true."""
        waiter = _Waiter(trio.lowlevel.current_task(), step)
        self._epoll.register(fd, events)
        self._waiters[fd] = waiter

        def abort(_: Any) -> trio.lowlevel.Abort:
            self._forget(fd)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def pause(self, fd: int) -> bool:
        """Let the task that sleeps for a descriptor sleep on, ready or not; whether
        there is one."""
        if fd not in self._waiters:
            return False
        self._epoll.unregister(fd)
        return True

    def resume(self, fd: int, events: int) -> None:
        """Look for these events again."""
        if fd in self._waiters:
            self._epoll.register(fd, events)

    def closing(self, fd: int) -> None:
        """A descriptor is about to be closed: a task that sleeps for it goes on."""
        waiter = self._waiters.get(fd)
        if waiter is not None:
            self._wake(fd, waiter, outcome.Value(None))

    # -- Instrument --------------------------------------------------------------------------------

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        self._woken = True

    def before_io_wait(self, timeout: float) -> None:
        try:
            if not self._serve_for(timeout):
                return
        except BaseException as exc:
            self._token.run_sync_soon(_raise, exc)
        else:
            self._token.run_sync_soon(_noop, idempotent=True)

    # ----------------------------------------------------------------------------------------------

    def _serve_for(self, timeout: float) -> bool:
        """Serve until trio has something to do; returns whether it would sleep all the same."""
        poll = self._epoll.poll
        if timeout <= 0:
            self._serve(poll(0))
            return False
        self._woken = False
        end = monotonic() + timeout
        left = timeout
        while left > 0:
            trio_is_ready = self._serve(poll(left))
            if self._woken:
                return True
            if trio_is_ready:
                return False
            left = end - monotonic()
        return not self._trio_waits_for_idle(timeout)

    def _serve(self, events: list[tuple[int, int]]) -> bool:
        """Do what is due; returns whether something is due for trio, too."""
        trio_is_ready = False
        for fd, _ in events:
            waiter = self._waiters.get(fd)
            if waiter is None:
                trio_is_ready |= fd == self._trio_epoll
                continue
            try:
                if not waiter.task.context.run(waiter.step):
                    continue
                result: outcome.Outcome[None] = outcome.Value(None)
            except BaseException as exc:
                result = outcome.Error(exc)
            self._wake(fd, waiter, result)
        return trio_is_ready

    def _trio_waits_for_idle(self, timeout: float) -> bool:
        """Whether trio, woken when its timeout was over, waits again, and for no deadline.

        Then it is to find out that nothing happens (`wait_all_tasks_blocked`, a clock that jumps),
        and our waking it is what happens. Only tests wait for that.
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
    return _current.get()


def _epoll_of_trio() -> int | None:
    """The one epoll that this process has."""
    trio_epoll_fd = []
    if sys.platform == "linux":
        with suppress(OSError):
            for name in os.listdir("/proc/self/fd"):
                with suppress(OSError):
                    if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventpoll]":
                        trio_epoll_fd.append(int(name))
    return trio_epoll_fd[0] if len(trio_epoll_fd) == 1 else None


def _log_unavailable() -> None:
    if os.environ.get("ACP_CONDUCTOR_PLANE") == "off":
        log.debug("epoll fast path switched off")
    elif sys.platform == "linux":
        log.warning("epoll fast path unavailable: trio's epoll descriptor was not identified")
    else:
        log.info("epoll fast path unavailable: needs Linux")


def _noop() -> None:
    pass


def _raise(exc: BaseException) -> NoReturn:
    raise exc
