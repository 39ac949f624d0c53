"""Guard process that ends all components if the conductor is killed (SIGKILL).

The guard, a shell, reads the process groups of the children from a pipe; only the conductor
holds its other end. At EOF it kills these groups and becomes `orphan_guard_process`, which kills
all processes with the conductor's mark in their environment. A shell takes 1 ms and 2 MB, a waiting
Python 10 ms and 9 MB. In an orderly stop the guard is killed with the other descendants.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # without its enums: 2.4 ms
import os
import subprocess
import sys
from contextlib import suppress

from conductor.transport.process_tree import forget_readers, has_reader, own_mark, report_to

__all__ = ["start_orphan_guard"]

_PROGRAM = os.path.join(os.path.dirname(__file__), "orphan_guard_process.py")

_LOADER_VARIABLES = ("LD_LIBRARY_PATH",)
"""Some interpreters do not start without."""
_SHELL = "/bin/sh"
_SCRIPT = """
trap '' HUP INT TERM
groups=' '
while read -r sign pid; do
    case $sign in
        +) groups="$groups$pid " ;;
        -) groups="${groups%% $pid *} ${groups#* $pid }" ;;
    esac
done
for pid in $groups; do
    kill -KILL "-$pid"
done
exec "$@"
"""


def start_orphan_guard() -> None:
    """Start the guard, unless there is one, and tell it of all children. Without one if it cannot
    start."""
    if has_reader() or not sys.executable:
        return
    with suppress(OSError, ValueError):
        _start()


def _start() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    # The mark is an argument: in its environment, an outer conductor would take it for a leftover.
    argv = [_SHELL, "-c", _SCRIPT, "guard", sys.executable, "-I", "-S", _PROGRAM, own_mark()]
    env = {name: os.environ[name] for name in _LOADER_VARIABLES if name in os.environ}
    try:
        guard = subprocess.Popen(
            argv,
            env=env,
            cwd="/",
            stdin=read,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
    except BaseException:
        os.close(write)
        raise
    finally:
        os.close(read)
    guard.returncode = 0  # it is reaped with our descendants, not by `subprocess`
    pid = guard.pid

    us = os.getpid()

    def tell(line: bytes) -> bool:
        if os.getpid() != us:
            return False
        try:
            os.write(write, line)
        except BlockingIOError:  # it does not read: it would kill by numbers that are old
            os.kill(pid, signal.SIGKILL)
            return False
        except OSError:  # it has been killed
            return False
        return True

    def forked() -> None:
        """A process that a plugin forks must not hold the pipe open after our end."""
        os.close(write)
        forget_readers()

    os.register_at_fork(after_in_child=forked)
    report_to(pid, tell)
