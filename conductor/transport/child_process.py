"""Child processes: a component, whose pipes are a transport, and a tool, whose output is read.

`process_group` has its exit and the end of its descendants. If the conductor is killed (SIGKILL),
the `orphan_guard` ends the child.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

import trio

from conductor.transport.base import CHUNK_SIZE
from conductor.transport.fd_transport import FdTransport
from conductor.transport.process_group import ProcessGroup
from conductor.transport.spawn import spawn_process, spawn_with_output

__all__ = ["ChildProcess", "OutputProcess", "start_child", "start_output_process"]


class ChildProcess(ProcessGroup, eq=False, kw_only=True):
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


class OutputProcess(ProcessGroup, eq=False, kw_only=True):
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
