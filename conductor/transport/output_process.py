"""A program with an empty stdin, and one stream for its stdout and stderr.

Its exit and the end of its descendants: `process_group`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

import trio

from conductor.transport.base import CHUNK_SIZE
from conductor.transport.process_group import ProcessGroup
from conductor.transport.spawn import spawn_with_output

__all__ = ["OutputProcess", "start_output_process"]


class OutputProcess(ProcessGroup, eq=False, kw_only=True):
    """A started program; `close` it when it has ended."""

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
