"""Guard process that ends all components if the conductor is killed (SIGKILL).

The guard, a shell, reads the process groups of the children from a pipe; only the conductor
holds its other end. At EOF it kills these groups and becomes `orphan_guard_process`, which kills
all processes with the conductor's mark in their environment. A shell takes 1 ms and 2 MB, a waiting
Python 10 ms and 9 MB. In an orderly stop the guard is killed with the other descendants.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

from conductor.transport.process_tree import forget_readers, has_reader, own_mark, report_to

__all__ = ["start_orphan_guard"]

_PROGRAM = os.path.join(os.path.dirname(__file__), "orphan_guard_process.py")

_LOADER_VARIABLES = ("LD_LIBRARY_PATH",)
"""Environment variables that some interpreters need to start."""
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
    """Start the guard, unless it runs, and report all children to it. Does nothing if it cannot
    start."""
    if has_reader() or not sys.executable:
        return
    with suppress(OSError, ValueError):
        _start()


def _start() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    # The mark is an argument: in its environment, an outer conductor would take it for a leftover.
    argv = [_SHELL, "-c", _SCRIPT, "guard", sys.executable, "-I", _PROGRAM, own_mark()]
    env = {name: os.environ[name] for name in _LOADER_VARIABLES if name in os.environ}
    try:
        guard = subprocess.Popen(
            argv,
            env=env,
            cwd="/",
            stdin=read,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except BaseException:
        os.close(write)
        raise
    finally:
        os.close(read)
    guard.returncode = 0  # `kill_descendants` reaps it, not `subprocess`
    pid = guard.pid

    conductor = os.getpid()

    def report(line: bytes) -> bool:
        if os.getpid() != conductor:
            return False
        try:
            os.write(write, line)
        except BlockingIOError:  # it does not read, and would kill by stale process ids
            os.kill(pid, signal.SIGKILL)
            return False
        except OSError:  # it has been killed
            return False
        return True

    def forked() -> None:
        """Close the pipe in forked processes, so that it ends with the conductor."""
        os.close(write)
        forget_readers()

    os.register_at_fork(after_in_child=forked)
    report_to(pid, report)
