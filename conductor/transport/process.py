"""A child process: its pipes as a transport, its end, and the end of everything it started.

Every child leads a process group of its own, so that what it started in turn can be ended with it.
On Linux it is told to die with us (PR_SET_PDEATHSIG), should we be killed without a chance to stop
it; elsewhere the end of its stdin has to do.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

import attrs
import trio

from conductor.transport.base import CHUNK
from conductor.transport.fds import FdTransport

__all__ = ["Child", "SpawnError", "adopt_orphans", "kill_descendants", "spawn"]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class SpawnError(Exception):
    """The program could not be started; the text says why, for people."""


@attrs.define(eq=False)
class Child:
    """A running child. `transport` reads its stdout and writes its stdin."""

    pid: int
    transport: FdTransport
    _process: subprocess.Popen[bytes]
    _stderr_fd: int

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
        return describe_status(self._process.wait())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the child's whole process group."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    @property
    def status(self) -> str | None:
        """How it ended, or `None` while it runs."""
        code = self._process.returncode
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
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd=cwd,
            bufsize=0,
            process_group=0,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as exc:
        raise SpawnError(_why_not(exc, argv, env, cwd)) from exc
    fds = []
    for stream in (process.stdin, process.stdout, process.stderr):
        assert stream is not None
        fd = os.dup(stream.fileno())
        os.set_blocking(fd, False)
        stream.close()
        fds.append(fd)
    return Child(process.pid, FdTransport(fds[1], fds[0]), process, fds[2])


def describe_status(returncode: int) -> str:
    """A process's end in words: "exited with status 3", "was ended by SIGKILL"."""
    if returncode >= 0:
        return f"exited with status {returncode}"
    try:
        return f"was ended by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was ended by signal {-returncode}"


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends (Linux), so they can be found."""
    if sys.platform == "linux":
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def kill_descendants() -> None:
    """Kill whatever is still below this process (Linux): only for the end of a program of ours."""
    for _ in range(20):  # those that appear while we look
        pids = _descendants(os.getpid())
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                for child in map(int, file.read().split()):
                    found += [child, *_descendants(child)]
    except OSError:
        pass
    return found


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


_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _prctl(option: int, value: int) -> None:
    assert _libc is not None
    _libc.prctl(option, value, 0, 0, 0)


def _die_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _why_not(exc: Exception, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> str:
    if cwd is not None and not os.path.isdir(cwd):
        return f"its working directory does not exist: {cwd}"
    match exc:
        case FileNotFoundError():
            if os.path.dirname(argv[0]):
                return f"no such file: {argv[0]}"
            return f"command not found: {argv[0]} (PATH is {env.get('PATH', 'empty')})"
        case PermissionError():
            return f"not executable: {argv[0]}"
        case OSError():
            return f"{argv[0]}: {exc.strerror}"
    return f"{argv[0]}: {exc}"
