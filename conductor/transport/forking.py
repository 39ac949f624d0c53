"""Fork and exec, as `subprocess` does it, whose import takes 4 ms before a component can start.

What other threads held when a child was forked is held there for ever: so until it execs, the child
imports, logs and awaits nothing. What fails in it ends it, and its parent reads the errno from a
pipe that a successful exec closes.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # without its enums: 2.4 ms
import ctypes
import errno
import os
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from conductor.transport.descendants import child_reaped

__all__ = ["fork_and_exec", "kill_group"]

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def fork_and_exec(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str | None,
    stdio: Sequence[int],
    *,
    outlives_us: bool = False,
) -> int:
    """Start a program, and return its process id.

    It leads a process group of its own, dies with the thread that starts it (Linux; unless it
    `outlives_us`), and has the three descriptors of `stdio`, which have to be above 2, and no
    others. Raises `OSError`, or `ValueError` for what cannot be passed to a program.
    """
    if not argv[0]:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    words = [_passable(word) for word in argv]
    # `=x`, which has no name, may be in our own environment; Python does not pass it on.
    variables = {_passable(name): _passable(value) for name, value in env.items() if name}
    if any(b"=" in name for name in variables):
        raise ValueError("illegal environment variable name")
    programs = _candidates(words[0], env)
    parent = os.getpid()
    report, error = os.pipe()
    try:
        # No handler of ours may run in the child: signals wait until it has none.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = _fork()
            if pid == 0:
                try:
                    _prepare(stdio, error, None if outlives_us else parent)
                    _forget_signals(mask)
                    if cwd is not None:
                        os.chdir(cwd)
                    _exec(programs, words, variables)
                except BaseException as exc:
                    os.write(error, b"%d" % (getattr(exc, "errno", None) or errno.EINVAL))
                finally:
                    os._exit(255)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(error)
        _await_exec(pid, report)
    finally:
        os.close(report)
    return pid


def kill_group(pid: int) -> None:
    """Kill a child with its whole process group, and reap it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    child_reaped(pid)  # before its number is free
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _fork() -> int:
    with warnings.catch_warnings():
        # Since Python 3.12, where there are other threads: see above.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _await_exec(pid: int, report: int) -> None:
    """Wait until the child runs its program. Raises why it does not, `OSError`; it is gone then."""
    try:
        if text := os.read(report, 16):
            raise OSError(int(text), os.strerror(int(text)))
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _passable(text: str) -> bytes:
    data = os.fsencode(text)
    if b"\0" in data:
        raise ValueError("embedded null byte")
    return data


def _candidates(program: bytes, env: Mapping[str, str]) -> list[bytes]:
    """Where the program may be: on the PATH that it is given, not on ours."""
    if os.path.dirname(program):
        return [program]
    return [os.path.join(os.fsencode(folder), program) for folder in os.get_exec_path(env)]


# -- in the child ----------------------------------------------------------------------------------


def _prepare(stdio: Sequence[int], error: int, parent: int | None) -> None:
    """`parent` is the process that this one is to die with, if any."""
    os.setpgid(0, 0)
    if _prctl is not None and parent is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it had died before
            os._exit(255)
    for number, fd in enumerate(stdio):
        os.dup2(fd, number)
    # What is open above is not inherited, unless somebody left it to us, or wants it to be.
    highest = _highest()
    os.closerange(3, error)
    os.closerange(error + 1, highest + 1)


def _forget_signals(mask: Iterable[int]) -> None:
    """Nothing is handled by us any more, nor ignored because Python does."""
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler) or number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _highest() -> int:
    """The highest descriptor that is open."""
    try:
        return max(int(name) for name in os.listdir("/dev/fd"))
    except OSError:  # there is no /proc
        return os.sysconf("SC_OPEN_MAX")


def _exec(programs: Iterable[bytes], words: list[bytes], variables: dict[bytes, bytes]) -> None:
    """Become the first of these programs that can be started. Raises `OSError`."""
    failures: list[OSError] = []
    for program in programs:
        try:
            os.execve(program, words, variables)
        except OSError as exc:
            failures.append(exc)
    missing = (FileNotFoundError, NotADirectoryError)
    # One that is there, and cannot be started, says more than those that are not.
    raise next((exc for exc in failures if not isinstance(exc, missing)), failures[-1])
