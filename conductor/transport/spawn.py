"""Start a program with its own session and pipes.

Programs of a chain with `prewarm: true` start before a client asks for them (`prestart_all`); the
next `spawn_process` of the same command takes them over.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Literal

import attrs

from conductor.transport.process_tree import (
    MARK,
    become_subreaper,
    child_reaped,
    child_started,
    new_mark,
)

__all__ = [
    "SpawnError",
    "SpawnedProcess",
    "end_prestarted",
    "prestart",
    "prestart_all",
    "spawn_process",
    "spawn_with_output",
]


class SpawnError(Exception):
    """The program could not be started; the text is the reason."""


@attrs.frozen(eq=False, repr=False)
class SpawnedProcess:
    """A started program: its process id, the conductor's ends of its pipes, which are non-blocking,
    and the mark in its environment."""

    pid: int
    mark: str
    stdin: int
    stdout: int
    stderr: int


class _Prestarted:
    """A program started before `spawn_process` is called for it."""

    __slots__ = ("argv", "cwd", "env", "environ", "spawned")

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> None:
        self.argv = tuple(argv)
        self.env = dict(env)
        self.cwd = cwd
        self.environ = dict(os.environ)
        self.spawned = _spawn_component(self.argv, self.env, self.cwd)

    def matches(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> bool:
        """Whether `spawn_process` is called for this command. Ignores the mark, and variables that
        a plugin has changed in `os.environ` since then."""
        changed = {MARK} | {name for name, _ in self.environ.items() ^ os.environ.items()}
        return (self.argv, self.cwd) == (tuple(argv), cwd) and all(
            name in changed for name, _ in self.env.items() ^ env.items()
        )


_prestarted: list[_Prestarted] = []


def prestart(argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None) -> None:
    """Start a program early, for a later `spawn_process`. Errors are ignored."""
    with suppress(SpawnError):  # it fails again in `spawn_process`, where it is reported
        _prestarted.append(_Prestarted(argv, env, cwd))


def prestart_all(
    programs: Iterable[tuple[Sequence[str], Mapping[str, str], str | None]],
) -> None:
    """Start programs early, each an argv, environment and working directory. If the conductor is
    killed before it serves, the orphan guard ends them."""
    from conductor.transport.orphan_guard import start_orphan_guard

    become_subreaper()
    start_orphan_guard()
    for argv, env, cwd in programs:
        prestart(argv, env=env, cwd=cwd)


def end_prestarted() -> None:
    """Kill early started programs that `spawn_process` was not called for, with their groups."""
    while _prestarted:
        _discard(_prestarted.pop().spawned)


def spawn_process(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None
) -> SpawnedProcess:
    """Start a program, without a shell. Raises `SpawnError`."""
    for index, early in enumerate(_prestarted):
        if early.matches(argv, env, cwd):
            del _prestarted[index]
            return early.spawned
    return _spawn_component(argv, env, cwd)


def _spawn_component(
    argv: Sequence[str], env: Mapping[str, str], cwd: str | None
) -> SpawnedProcess:
    pid, mark, pipes = _spawn(argv, env, cwd, ("in", "out", "out"))
    return SpawnedProcess(pid, mark, *pipes)


def spawn_with_output(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None
) -> tuple[int, str, int]:
    """Start a program with an empty stdin and one pipe for stdout and stderr. Returns its process
    id, its mark, and the end of the pipe to read, which is non-blocking. Raises `SpawnError`."""
    pid, mark, (read,) = _spawn(argv, env, cwd, ("null", "out"))
    return pid, mark, read


def _spawn(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str | None,
    stdio: Sequence[Literal["null", "in", "out"]],
) -> tuple[int, str, list[int]]:
    """Start a program with the null device or a pipe as its stdin, stdout and stderr; the last one
    of `stdio` serves for those after it, too. Returns its process id, its mark, and the other ends
    of the pipes."""
    parent_ends: list[int] = []
    child_ends: list[int] = []
    reserved: list[int] = []
    mark = new_mark()
    try:
        _reserve_stdio_numbers(reserved)
        for kind in stdio:
            if kind == "null":
                child_ends.append(os.open(os.devnull, os.O_RDONLY))
                continue
            read, write = os.pipe()
            parent_ends.append(write if kind == "in" else read)
            child_ends.append(read if kind == "in" else write)
            os.set_blocking(parent_ends[-1], False)
        pid = _start(argv, {**env, MARK: mark}, cwd, child_ends)
    except (OSError, ValueError) as exc:
        for fd in parent_ends:
            os.close(fd)
        raise SpawnError(_describe_failure(exc, argv, env, cwd)) from exc
    finally:
        for fd in (*child_ends, *reserved):
            os.close(fd)
    child_started(pid)
    return pid, mark, parent_ends


def _start(
    argv: Sequence[str], env: Mapping[str, str], cwd: str | None, stdio: Sequence[int]
) -> int:
    """Start a program in a session and process group of its own, and return its process id.

    Without a controlling terminal, opening `/dev/tty` fails. In a background process group of the
    terminal from which the conductor was started, reading it would stop the program for ever.

    `subprocess` searches the PATH of `env` and passes no descriptors except `stdio`. Raises
    `OSError`, or `ValueError` for arguments that cannot be passed to a program.
    """
    if not argv[0]:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    # The inherited environment may have a variable without a name; `Popen` refuses it.
    variables = {name: value for name, value in env.items() if name}
    stdin, stdout, *others = stdio
    child = subprocess.Popen(
        argv,
        env=variables,
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=others[0] if others else stdout,
        start_new_session=True,
    )
    child.returncode = 0  # `child_process` reaps it: `subprocess` must not
    return child.pid


def _discard(spawned: SpawnedProcess) -> None:
    """Kill a process that nothing is connected to, and close its pipes."""
    _kill_group(spawned.pid)
    for fd in (spawned.stdin, spawned.stdout, spawned.stderr):
        os.close(fd)


def _kill_group(pid: int) -> None:
    """Kill a child with its whole process group, and reap it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    child_reaped(pid)  # before its process id can be reused
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _reserve_stdio_numbers(reserved: list[int]) -> None:
    """Occupy closed descriptors 0-2, so that no pipe gets these numbers: the child needs them."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        reserved.append(fd)
    os.close(fd)


def _describe_failure(
    exc: Exception, argv: Sequence[str], env: Mapping[str, str], cwd: str | None
) -> str:
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
