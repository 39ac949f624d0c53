"""Child process: its pipes as a transport, its exit, and the end of its descendants.

Every child leads its own process group, so that its descendants can be killed with it; on Linux,
those that left the group are found by a mark in their environment (`process_tree`). If the
conductor is killed (SIGKILL), the `orphan_guard` ends the child.
"""

from __future__ import annotations

import fcntl
import math
import os
import signal
import sys
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import attrs
import trio

from conductor.transport.base import CHUNK_SIZE
from conductor.transport.fd_transport import FdTransport
from conductor.transport.process_tree import (
    child_reaped,
    kill_marked,
    reap_adopted,
    sandboxed_group,
)
from conductor.transport.spawn import spawn_process

__all__ = ["ChildProcess", "describe_status", "start_child"]

_LEFTOVER_CHECKS: Final = 20
_PATIENT_CHECKS: Final = 2
_LEFTOVER_INTERVAL: Final = 0.005
_MAX_POLL_INTERVAL: Final = 0.05
_SHELL_SIGNALS: Final = 128
_WAIT_LIMITER: Final = trio.CapacityLimiter(math.inf)
"""Without `pidfd`, each running child takes one thread."""


@attrs.define(eq=False, repr=False)
class ChildProcess:
    """A child process. `transport` reads its stdout and writes its stdin."""

    pid: int
    transport: FdTransport
    _stderr_fd: int
    _mark: str
    _sandboxed: bool = False
    _returncode: int | None = None

    async def read_stderr(self) -> bytes:
        """The next bytes of its stderr; `b""` at the end."""
        try:
            while True:
                await trio.lowlevel.wait_readable(self._stderr_fd)
                with suppress(BlockingIOError):
                    return os.read(self._stderr_fd, CHUNK_SIZE)
        except (OSError, trio.ClosedResourceError):
            return b""

    def stderr_waiting(self) -> int:
        """Number of unread bytes in the stderr pipe."""
        waiting = bytearray(4)
        try:
            fcntl.ioctl(self._stderr_fd, termios.FIONREAD, waiting)
        except (OSError, ValueError):  # closed
            return 0
        return int.from_bytes(waiting, sys.byteorder)

    async def wait(self) -> str:
        """Wait until it exits, kill its remaining descendants, and return its status as text."""
        code = await _wait_exited(self.pid)
        # While the group leader is not reaped, its process id cannot be reused.
        self.signal(signal.SIGKILL)
        child_reaped(self.pid)
        code = _reap(self.pid) if code is None else code
        # `bwrap` reports a program that a signal has ended as a shell does.
        is_signal = self._sandboxed and _SHELL_SIGNALS < code <= _SHELL_SIGNALS + signal.NSIG
        self._returncode = _SHELL_SIGNALS - code if is_signal else code
        await self._end_leftovers()
        return describe_status(self._returncode)

    async def _end_leftovers(self) -> None:
        """Kill descendants outside the group: the subreaper adopts each when its parent ends."""
        with trio.CancelScope(shield=True):  # a tenth of a second at most
            for check in range(_LEFTOVER_CHECKS):
                left = kill_marked(self._mark, patient=check < _PATIENT_CHECKS)
                if not left and not _group_exists(self.pid):
                    return
                await trio.sleep(_LEFTOVER_INTERVAL)
                reap_adopted(trio.current_time())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the child's whole process group; of a sandbox, to the program in it.

        `bwrap` itself would end at once by SIGTERM, and the kernel would kill the program then.
        After SIGKILL to the group inside, it ends and reports that.
        """
        if self._returncode is None:
            group = sandboxed_group(self.pid) if self._sandboxed else None
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid if group is None else group, number)

    @property
    def location(self) -> str:
        """Location as text for logs and errors."""
        return f"process {self.pid}"

    @property
    def reached(self) -> bool:
        """Whether the component was reached; always true for a process."""
        return True

    @property
    def status(self) -> str | None:
        """Exit status as text; `None` while it runs."""
        code = self._returncode
        return None if code is None else describe_status(code)

    def close(self) -> None:
        """Close its pipes."""
        self.transport.close()
        if self._stderr_fd >= 0:
            trio.lowlevel.notify_closing(self._stderr_fd)
            os.close(self._stderr_fd)
            self._stderr_fd = -1


def start_child(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None, sandboxed: bool = False
) -> ChildProcess:
    """Start a program, without a shell. Raises `SpawnError`.

    `sandboxed`: it is `bwrap`, which starts the actual program in a session of its own.
    """
    spawned = spawn_process(argv, env=env, cwd=cwd)
    transport = FdTransport(spawned.stdout, spawned.stdin)
    return ChildProcess(spawned.pid, transport, spawned.stderr, spawned.mark, sandboxed)


def describe_status(returncode: int) -> str:
    """A return code as text: "exited with status 3", "was ended by SIGKILL"."""
    if returncode >= 0:
        return f"exited with status {returncode}"
    try:
        return f"was ended by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was ended by signal {-returncode}"


def _reap(pid: int) -> int:
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:  # reaped by code that waits for all children
        return 0


def _group_exists(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except OSError:
        return False
    return True


async def _wait_exited(pid: int) -> int | None:
    """Wait until a child has exited, if possible without reaping it.

    Returns the exit code if it had to be reaped: macOS has neither a `pidfd`, nor, before Python
    3.13, `waitid`.
    """
    if (fd := _pidfd(pid)) is not None:
        try:
            await trio.lowlevel.wait_readable(fd)
        finally:
            os.close(fd)
        return None
    if hasattr(os, "waitid"):
        await trio.to_thread.run_sync(
            partial(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT),
            abandon_on_cancel=True,
            limiter=_WAIT_LIMITER,
        )
        return None
    pause = 0.001
    while (ended := _poll(pid)) is None:
        await trio.sleep(pause)
        pause = min(2 * pause, _MAX_POLL_INTERVAL)
    return ended


def _pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the child exits; `None` if not supported."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _poll(pid: int) -> int | None:
    """Reap a child if it has exited, and return its exit code."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0
    return os.waitstatus_to_exitcode(status) if found else None
