"""Child processes: a component, whose pipes are a transport, and a tool, whose output is read.

A child leads its own session and process group. When it has exited, its descendants are killed with
the group; on Linux, those that left the group are found by a mark in their environment
(`process_tree`).
`reap_orphans` reaps adopted children for as long as the conductor runs. If the conductor is killed
(SIGKILL), the `orphan_guard` ends the children.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import trio

from conductor.transport.base import CHUNK_SIZE
from conductor.transport.fd_transport import FdTransport
from conductor.transport.process_tree import (
    child_reaped,
    kill_marked,
    reap_adopted,
    sandboxed_group,
    stopped_process,
)
from conductor.transport.spawn import spawn_process, spawn_with_output

__all__ = [
    "ChildProcess",
    "OutputProcess",
    "describe_status",
    "reap_orphans",
    "start_child",
    "start_output_process",
]

_LEFTOVER_CHECKS: Final = 20
_PATIENT_CHECKS: Final = 2
_LEFTOVER_INTERVAL: Final = 0.005
_MAX_POLL_INTERVAL: Final = 0.05
_MIN_REAP_INTERVAL: Final = 0.5
"""Minimum seconds between two checks for adopted children, however many processes end."""
_SHELL_SIGNALS: Final = 128


class _ProcessGroup(msgspec.Struct, eq=False, kw_only=True):
    """A child with its process group."""

    pid: int
    mark: str
    sandboxed: bool = False
    _returncode: int | None = None

    async def wait(self) -> str:
        """Wait until it exits, kill its remaining descendants, and return its status as text."""
        code = await _wait_exited(self.pid)
        # While the group leader is not reaped, its process id cannot be reused.
        self.signal(signal.SIGKILL)
        child_reaped(self.pid)
        code = _reap(self.pid) if code is None else code
        # `bwrap` reports a program that a signal has ended as a shell does.
        is_signal = self.sandboxed and _SHELL_SIGNALS < code <= _SHELL_SIGNALS + signal.NSIG
        self._returncode = _SHELL_SIGNALS - code if is_signal else code
        await self._end_leftovers()
        return describe_status(self._returncode)

    async def _end_leftovers(self) -> None:
        """Kill descendants outside the group: the subreaper adopts each when its parent ends."""
        with trio.CancelScope(shield=True):  # a tenth of a second at most
            for check in range(_LEFTOVER_CHECKS):
                left = kill_marked(self.mark, patient=check < _PATIENT_CHECKS)
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
            group = sandboxed_group(self.pid) if self.sandboxed else None
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid if group is None else group, number)

    @property
    def stopped(self) -> str | None:
        """Clause for messages about a component that does not react: "its process 12 is stopped by
        SIGTTIN"; `None` if no process of it is stopped."""
        found = None if self._returncode is not None else stopped_process(self.pid)
        if found is None:
            return None
        pid, number = found
        by = "" if number is None else f" by {signal.Signals(number).name}"
        return f"its process {pid} is stopped{by}"

    @property
    def status(self) -> str | None:
        """Exit status as text; `None` while it runs."""
        code = self._returncode
        return None if code is None else describe_status(code)

    @property
    def returncode(self) -> int | None:
        """Exit code, negative for a signal; `None` while it runs."""
        return self._returncode


class ChildProcess(_ProcessGroup, eq=False, kw_only=True):
    """A child process. `transport` reads its stdout and writes its stdin."""

    transport: FdTransport
    stderr_fd: int

    async def read_stderr(self) -> bytes:
        """The next bytes of its stderr; `b""` at the end."""
        try:
            while True:
                await trio.lowlevel.wait_readable(self.stderr_fd)
                with suppress(BlockingIOError):
                    return os.read(self.stderr_fd, CHUNK_SIZE)
        except (OSError, trio.ClosedResourceError):
            return b""

    @property
    def location(self) -> str:
        """Location as text for logs and errors."""
        return f"process {self.pid}"

    @property
    def reached(self) -> bool:
        """Whether the component was reached; always true for a process."""
        return True

    def close(self) -> None:
        """Close its pipes."""
        self.transport.close()
        if self.stderr_fd >= 0:
            trio.lowlevel.notify_closing(self.stderr_fd)
            os.close(self.stderr_fd)
            self.stderr_fd = -1


def start_child(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None, sandboxed: bool = False
) -> ChildProcess:
    """Start a program, without a shell. Raises `SpawnError`.

    `sandboxed`: it is `bwrap`, which starts the actual program in a session of its own.
    """
    spawned = spawn_process(argv, env=env, cwd=cwd)
    transport = FdTransport(spawned.stdout, spawned.stdin)
    return ChildProcess(
        pid=spawned.pid,
        transport=transport,
        stderr_fd=spawned.stderr,
        mark=spawned.mark,
        sandboxed=sandboxed,
    )


class OutputProcess(_ProcessGroup, eq=False, kw_only=True):
    """A program with an empty stdin, and one stream for its stdout and stderr; `close` it when it
    has ended."""

    output_fd: int

    async def read(self) -> bytes:
        """The next bytes of its output; `b""` when all processes have closed it, or when it has
        been waited for and all is read."""
        await trio.lowlevel.checkpoint()
        while self.output_fd >= 0:
            with suppress(BlockingIOError):
                return os.read(self.output_fd, CHUNK_SIZE)
            if self.returncode is not None:
                break
            with suppress(trio.ClosedResourceError):  # it has exited
                await trio.lowlevel.wait_readable(self.output_fd)
        return b""

    async def wait(self) -> str:
        """Wait until it exits, kill its remaining descendants, and return its status as text."""
        status = await super().wait()
        if self.output_fd >= 0:
            trio.lowlevel.notify_closing(self.output_fd)
        return status

    def close(self) -> None:
        """Close its output."""
        if self.output_fd >= 0:
            trio.lowlevel.notify_closing(self.output_fd)
            os.close(self.output_fd)
            self.output_fd = -1


def start_output_process(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None
) -> OutputProcess:
    """Start a program, without a shell. Raises `SpawnError`."""
    pid, mark, output = spawn_with_output(argv, env=env, cwd=cwd)
    return OutputProcess(pid=pid, mark=mark, output_fd=output)


async def reap_orphans() -> None:
    """Reap adopted children whenever a child ends. Only in the main thread."""
    with trio.open_signal_receiver(signal.SIGCHLD) as signals:
        while True:
            again = reap_adopted(trio.current_time())
            await trio.sleep(_MIN_REAP_INTERVAL)
            with trio.move_on_at(math.inf if again is None else again):
                await anext(signals)


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
    """Wait until a child has exited; returns the exit code if it had to be reaped, without a
    `pidfd` (macOS)."""
    if (fd := _pidfd(pid)) is not None:
        try:
            await trio.lowlevel.wait_readable(fd)
        finally:
            os.close(fd)
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
