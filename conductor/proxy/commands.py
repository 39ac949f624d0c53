"""Commands of a proxy: run without a shell, with a timeout and an output limit.

The command is an argv. It runs in its own process group, which is killed at the timeout, when the
caller is cancelled, and after the command has exited.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

import attrs
import trio

from conductor.files import outside_environment

__all__ = ["CommandResult", "program_warning", "run_command"]


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
