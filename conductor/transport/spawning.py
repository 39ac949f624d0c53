"""Starting a program: its process group and its pipes.

Apart from `process`, which waits for children, because this is wanted before trio is imported: at
the first sign of `initialize` the components start, and while they do, we import the rest
(`start_early`). An agent that takes 300 ms hides what trio takes.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from conductor.transport.descendants import (
    MARK,
    adopt_orphans,
    child_reaped,
    child_started,
    kill_descendants,
    new_mark,
)

__all__ = [
    "SpawnError",
    "Spawned",
    "adopt_orphans",
    "end_early",
    "kill_descendants",
    "spawn_process",
    "start_early",
]


class SpawnError(Exception):
    """The program could not be started; the text says why, for people."""


class Spawned:
    """A program that was started: its process, our ends of its pipes, which do not block, and the
    mark in its environment."""

    __slots__ = ("mark", "pid", "stderr", "stdin", "stdout")

    def __init__(self, pid: int, mark: str, stdin: int, stdout: int, stderr: int) -> None:
        self.pid = pid
        self.mark = mark
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr


class _Early:
    """A program that was started before somebody asked for it."""

    __slots__ = ("argv", "cwd", "env", "environ", "spawned")

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> None:
        self.argv = tuple(argv)
        self.env = dict(env)
        self.cwd = cwd
        self.environ = dict(os.environ)
        self.spawned = _spawn(argv, env, cwd)

    def is_what_is_asked_for(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None
    ) -> bool:
        """Of the environment, what a plugin has changed since in ours makes no difference, nor does
        the mark, which each program has of its own."""
        changed = {MARK} | {name for name, _ in self.environ.items() ^ os.environ.items()}
        return (self.argv, self.cwd) == (tuple(argv), cwd) and all(
            name in changed for name, _ in self.env.items() ^ env.items()
        )


_early: list[_Early] = []


def start_early(argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None) -> None:
    """Start a program that somebody will ask `spawn_process` for in a moment, if it can be."""
    with suppress(SpawnError):  # it fails again for whoever asks, who has somebody to tell
        _early.append(_Early(argv, env, cwd))


def end_early() -> None:
    """End what was started early and nobody has asked for, with its process group."""
    while _early:
        spawned = _early.pop().spawned
        _kill_group(spawned.pid)
        for fd in (spawned.stdin, spawned.stdout, spawned.stderr):
            os.close(fd)


def spawn_process(argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None) -> Spawned:
    """Start a program, without a shell. Raises `SpawnError`."""
    for index, early in enumerate(_early):
        if early.is_what_is_asked_for(argv, env, cwd):
            del _early[index]
            return early.spawned
    return _spawn(argv, env, cwd)


def _spawn(argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Spawned:
    ours: list[int] = []
    theirs: list[int] = []
    taken: list[int] = []
    mark = new_mark()
    try:
        _take_stdio_numbers(taken)
        for is_input in (True, False, False):
            read, write = os.pipe()
            ours.append(write if is_input else read)
            theirs.append(read if is_input else write)
            os.set_blocking(ours[-1], False)
        pid = _start(argv, {**env, MARK: mark}, cwd, theirs)
    except (OSError, ValueError) as exc:
        for fd in ours:
            os.close(fd)
        raise SpawnError(_why_not(exc, argv, env, cwd)) from exc
    finally:
        for fd in (*theirs, *taken):
            os.close(fd)
    child_started(pid)
    return Spawned(pid, mark, *ours)


def _start(
    argv: Sequence[str], env: Mapping[str, str], cwd: str | None, stdio: Sequence[int]
) -> int:
    """Start a program in a process group of its own, and return its process id.

    `subprocess` looks for it on the PATH of `env` and gives it no other descriptors than `stdio`.
    Raises `OSError`, or `ValueError` for what cannot be passed to a program.
    """
    if not argv[0]:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    # A variable without a name may be in our own environment; a program cannot be given one.
    variables = {name: value for name, value in env.items() if name}
    stdin, stdout, stderr = stdio
    child = subprocess.Popen(
        argv,
        env=variables,
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        process_group=0,
    )
    child.returncode = 0  # its end is waited for in `process`: `subprocess` is not to reap it
    return child.pid


def _kill_group(pid: int) -> None:
    """Kill a child with its whole process group, and reap it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    child_reaped(pid)  # before its number is free
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _take_stdio_numbers(taken: list[int]) -> None:
    """See that no pipe gets 0, 1 or 2 where one is closed: in the child, its own go there."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        taken.append(fd)
    os.close(fd)


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
