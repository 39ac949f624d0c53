"""Commands of a proxy, without a shell: run to the end, or beside the handlers.

`run_command` has a timeout and an output limit; it kills the process group of the command at the
timeout, when the caller is cancelled, and after the command has exited. `open_command` is for a
proxy that reads the output while the command runs; the command ends with the block that opened it,
with all its descendants, on Linux also those that left its process group.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import attrs
import trio

from conductor.files import outside_environment

if TYPE_CHECKING:
    from conductor.transport.child_process import OutputProcess

__all__ = ["CommandResult", "RunningCommand", "open_command", "program_warning", "run_command"]


@attrs.frozen
class CommandResult:
    """Outcome of a command."""

    status: int | None
    """The exit status, negative for a signal; `None` if it did not start or timed out."""
    stdout: bytes = b""
    stderr: bytes = b""
    problem: str | None = None
    """Why there is no status. Names the program, never its arguments: these may be secret."""


async def run_command(
    argv: Sequence[str],
    *,
    seconds: float,
    cwd: str | None = None,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    limit: int = 1_000_000,
) -> CommandResult:
    """Run a command, without a shell, until it exits; kill it after `seconds`.

    Gives it `stdin`, and keeps at most `limit` bytes of stdout and of stderr. `env` is its whole
    environment, by default that of this process. Raises nothing if the command fails or does not
    start: `CommandResult.problem` says why. The command and its children, which are in its process
    group, are killed when this returns or is cancelled.
    """
    from subprocess import PIPE  # lazy: takes 3 ms to import

    env = outside_environment(os.environ if env is None else env)
    try:
        process = await trio.lowlevel.open_process(
            argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=cwd, env=env, start_new_session=True
        )
    except (OSError, ValueError) as exc:
        # A missing directory is reported as a missing file, under the directory's name.
        where = f" in {cwd}" if cwd is not None and getattr(exc, "filename", None) == cwd else ""
        return CommandResult(None, problem=f"{argv[0]} cannot be run{where}: {_reason(exc)}")
    out, err = bytearray(), bytearray()
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with trio.move_on_after(seconds) as scope:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_write, process.stdin, stdin)
                nursery.start_soon(_read, process.stderr, err, limit)
                await _read(process.stdout, out, limit)
            await process.wait()
        finally:
            await _end(process)
    if scope.cancelled_caught:
        return CommandResult(None, bytes(out), bytes(err), f"{argv[0]} took over {seconds:g} s")
    return CommandResult(process.returncode, bytes(out), bytes(err))


async def _write(stream: trio.abc.SendStream, data: bytes) -> None:
    with suppress(trio.BrokenResourceError):  # the command may exit without reading stdin
        await stream.send_all(data)
    await stream.aclose()


async def _read(stream: trio.abc.ReceiveStream, into: bytearray, limit: int) -> None:
    """Read until EOF; bytes over the limit are read and dropped, so that the command continues."""
    async for data in stream:
        into += data[: max(0, limit - len(into))]


async def _end(process: trio.Process) -> None:
    """Kill the process group: a command that has exited may have left children."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with trio.CancelScope(shield=True):
        await process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                await stream.aclose()


def _reason(exc: OSError | ValueError) -> str:
    return exc.strerror or str(exc) if isinstance(exc, OSError) else str(exc)


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
    from conductor.transport.child_process import start_output_process  # lazy: 5 ms
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


def program_warning(argv: Sequence[str], env: Mapping[str, str] | None = None) -> str | None:
    """The warning of `check` for a program that is not installed; `None` if it is.

    Also `None` for relative paths: they are relative to the directory of a session.
    """
    program = os.path.expanduser(argv[0]) if argv else ""
    if not program or ("/" in program and not os.path.isabs(program)):
        return None
    if shutil.which(program, path=(env or {}).get("PATH")) is not None:
        return None
    return f"command not found: {program}"
