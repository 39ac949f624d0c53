"""Starting a program: its process group, its pipes, its end when we are killed.

Apart from `process`, which waits for children, because this is wanted before trio is imported: at
the first sign of `initialize` the components start, and while they do, we import the rest
(`start_early`). An agent that takes 300 ms hides what trio takes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from conductor.transport.forking import adopt_orphans, fork_and_exec

__all__ = ["SpawnError", "Spawned", "adopt_orphans", "spawn_process", "start_early"]


class SpawnError(Exception):
    """The program could not be started; the text says why, for people."""


class Spawned:
    """A program that was started: its process, and our ends of its pipes, which do not block."""

    __slots__ = ("pid", "stderr", "stdin", "stdout")

    def __init__(self, pid: int, stdin: int, stdout: int, stderr: int) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr


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


def _spawn(argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Spawned:
    ours: list[int] = []
    theirs: list[int] = []
    taken: list[int] = []
    try:
        _take_stdio_numbers(taken)
        for is_input in (True, False, False):
            read, write = os.pipe()
            ours.append(write if is_input else read)
            theirs.append(read if is_input else write)
            os.set_blocking(ours[-1], False)
        pid = fork_and_exec(argv, env, cwd, theirs)
    except (OSError, ValueError) as exc:
        for fd in ours:
            os.close(fd)
        raise SpawnError(_why_not(exc, argv, env, cwd)) from exc
    finally:
        for fd in (*theirs, *taken):
            os.close(fd)
    return Spawned(pid, *ours)


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
