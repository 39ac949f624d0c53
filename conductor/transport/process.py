"""A child process: its pipes as a transport, its end, and the end of everything it started.

Every child leads a process group of its own, so that what it started in turn can be ended with it.
On Linux it is told to die with us (PR_SET_PDEATHSIG), should we be killed without a chance to stop
it; elsewhere the end of its stdin has to do (`spawning`).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

import attrs
import trio

from conductor.transport.base import CHUNK
from conductor.transport.fds import FdTransport
from conductor.transport.spawning import (
    SpawnError,
    adopt_orphans,
    kill_descendants,
    spawn_process,
)

__all__ = ["Child", "SpawnError", "adopt_orphans", "kill_descendants", "spawn"]


@attrs.define(eq=False, repr=False)
class Child:
    """A running child. `transport` reads its stdout and writes its stdin."""

    pid: int
    transport: FdTransport
    _stderr_fd: int
    _returncode: int | None = None

    async def read_stderr(self) -> bytes:
        """The next bytes of its stderr; `b""` at the end."""
        try:
            while True:
                await trio.lowlevel.wait_readable(self._stderr_fd)
                with suppress(BlockingIOError):
                    return os.read(self._stderr_fd, CHUNK)
        except (OSError, trio.ClosedResourceError):
            return b""

    async def wait(self) -> str:
        """Wait for its end, end its process group too, and return how it ended, for people."""
        await _wait_exited(self.pid)
        # The leader is not reaped yet, so its number cannot belong to another group by now.
        self.signal(signal.SIGKILL)
        self._returncode = _reap(self.pid)
        return describe_status(self._returncode)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the child's whole process group."""
        if self._returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    @property
    def where(self) -> str:
        """Where it is, for people."""
        return f"process {self.pid}"

    @property
    def reached(self) -> bool:
        """Whether there was anybody to speak to: it runs, so there was."""
        return True

    @property
    def status(self) -> str | None:
        """How it ended, or `None` while it runs."""
        code = self._returncode
        return None if code is None else describe_status(code)

    def close(self) -> None:
        """Give up its pipes."""
        self.transport.close()
        if self._stderr_fd >= 0:
            trio.lowlevel.notify_closing(self._stderr_fd)
            os.close(self._stderr_fd)
            self._stderr_fd = -1


def spawn(argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None) -> Child:
    """Start a program, without a shell. Raises `SpawnError`."""
    spawned = spawn_process(argv, env=env, cwd=cwd)
    transport = FdTransport(spawned.stdout, spawned.stdin)
    return Child(spawned.pid, transport, spawned.stderr)


def describe_status(returncode: int) -> str:
    """A process's end in words: "exited with status 3", "was ended by SIGKILL"."""
    if returncode >= 0:
        return f"exited with status {returncode}"
    try:
        return f"was ended by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was ended by signal {-returncode}"


def _reap(pid: int) -> int:
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:  # somebody who waits for all children was faster
        return 0


async def _wait_exited(pid: int) -> None:
    """Wait until a child has ended, without reaping it."""
    try:
        fd = os.pidfd_open(pid)
    except (AttributeError, OSError):
        await trio.to_thread.run_sync(
            os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT, abandon_on_cancel=True
        )
        return
    try:
        await trio.lowlevel.wait_readable(fd)
    finally:
        os.close(fd)
