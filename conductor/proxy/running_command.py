"""A command that runs beside the handlers, for a proxy that reads its output while it runs.

`commands.run_command` runs one to its end instead. A command ends with the block that opened it,
with all its descendants, as a component of the chain does; on Linux also those that left its
process group.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import trio

if TYPE_CHECKING:
    from conductor.transport.output_process import OutputProcess

__all__ = ["RunningCommand", "open_command"]


@attrs.frozen(eq=False, repr=False)
class RunningCommand:
    """A command that `open_command` has started. One task at a time may `read`."""

    _process: OutputProcess
    _waiting: trio.Lock = attrs.field(factory=trio.Lock)

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its process group."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; `None` until `wait` has returned."""
        return self._process.returncode

    async def read(self) -> bytes:
        """Return the next bytes of its output, stdout and stderr as they came; `b""` at the end.

        The end is when all its processes have closed the output. If another task waits for the
        command with `wait`, it is also when the command has exited and all is read. If the output
        is not read, the command blocks when the pipe is full.
        """
        return await self._process.read()

    async def wait(self) -> int:
        """Wait until the command exits; return the exit status, negative for a signal.

        Processes that it has left running are killed then.
        """
        async with self._waiting:
            if self._process.returncode is None:
                await self._process.wait()
        assert self._process.returncode is not None
        return self._process.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the command and its children; nothing if it has ended."""
        self._process.signal(number)


@asynccontextmanager
async def open_command(
    argv: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None
) -> AsyncIterator[RunningCommand]:
    """Run a command, without a shell, for the duration of an `async with` block.

    Its stdin is empty. `env` is its whole environment, by default that of this process. At the end
    of the block the command is killed with its descendants. Raises `OSError` with the reason if it
    does not start.
    """
    from conductor.transport.output_process import start_output_process  # lazy: 5 ms
    from conductor.transport.spawn import SpawnError

    try:
        process = start_output_process(argv, env=os.environ if env is None else env, cwd=cwd)
    except SpawnError as exc:
        raise OSError(str(exc)) from None
    command = RunningCommand(process)
    try:
        yield command
    finally:
        with trio.CancelScope(shield=True):
            process.signal(signal.SIGKILL)
            await command.wait()
            process.close()
