"""Starting a program: its process group, its pipes, its end when we are killed.

Apart from `process`, which waits for children, because this is wanted before trio is imported: at
the first sign of `initialize` the components start, and while they do, we import the rest
(`start_early`). An agent that takes 300 ms hides what trio takes.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

__all__ = ["SpawnError", "Spawned", "adopt_orphans", "spawn_process", "start_early"]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class SpawnError(Exception):
    """The program could not be started; the text says why, for people."""


class Spawned:
    """A program that was started: its process, and our ends of its pipes, which do not block."""

    __slots__ = ("process", "stderr", "stdin", "stdout")

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        fds: list[int] = []
        try:
            for stream in (process.stdin, process.stdout, process.stderr):
                fds.append(_own(stream))
        except OSError:
            for fd in fds:
                os.close(fd)
            raise
        self.stdin, self.stdout, self.stderr = fds


_Key = tuple[tuple[str, ...], dict[str, str], str | None]
_early: list[tuple[_Key, Spawned]] = []


def start_early(argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None) -> None:
    """Start a program that somebody will ask `spawn_process` for in a moment, if it can be."""
    with suppress(SpawnError):  # it fails again for whoever asks, who has somebody to tell
        _early.append(((tuple(argv), dict(env), cwd), _spawn(argv, env, cwd)))


def spawn_process(argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None) -> Spawned:
    """Start a program, without a shell. Raises `SpawnError`."""
    wanted = (tuple(argv), dict(env), cwd)
    for index, (key, spawned) in enumerate(_early):
        if key == wanted:
            del _early[index]
            return spawned
    return _spawn(argv, env, cwd)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends (Linux), so they can be found."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _spawn(argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Spawned:
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
            preexec_fn=_die_with_parent if _libc is not None else None,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as exc:
        raise SpawnError(_why_not(exc, argv, env, cwd)) from exc
    try:
        return Spawned(process)
    except OSError as exc:  # no descriptors left: what was started must not stay
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with process:  # closes its pipes, and waits
            pass
        raise SpawnError(_why_not(exc, argv, env, None)) from exc


def _own(stream: object) -> int:
    fd = os.dup(stream.fileno())  # type: ignore[attr-defined]
    os.set_blocking(fd, False)
    stream.close()  # type: ignore[attr-defined]
    return fd


def _prctl(option: int, value: int) -> None:
    if _libc is not None:
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
