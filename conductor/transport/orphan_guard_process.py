"""Second stage of the `orphan_guard`: kill all processes with the mark given as argument.

Started as `python -I -S`; imports only C modules.
"""

import posix
import sys
import time

_CHUNK = 65536
_SIGKILL = 9
_TIMEOUT = 5.0
_EMPTY_CHECKS = 3
"""Consecutive checks without a match before it ends: a process has no readable environment for a
moment during `exec`."""
_CHECK_INTERVAL = 0.01


def main() -> None:
    mark = b"ACP_CONDUCTOR_TREE=" + sys.argv[1].encode()
    end = time.monotonic() + _TIMEOUT
    found_nothing = 0
    while found_nothing < _EMPTY_CHECKS and time.monotonic() < end:
        if _kill_marked(mark):  # a killed process may have started another before
            found_nothing = 0
        else:
            found_nothing += 1
        time.sleep(_CHECK_INTERVAL)


def _kill_marked(mark: bytes) -> bool:
    """Kill the processes with this mark (Linux); true if there were any."""
    found = False
    try:
        names = posix.listdir("/proc")
    except OSError:
        return False
    for name in names:
        if name.isdigit() and _has_mark(name, mark):
            found = _kill(int(name)) or found
    return found


def _has_mark(name: str, mark: bytes) -> bool:
    try:
        file = posix.open("/proc/" + name + "/environ", posix.O_RDONLY)
    except OSError:
        return False
    environ = b""
    try:
        while chunk := posix.read(file, _CHUNK):
            environ += chunk
    except OSError:
        pass
    finally:
        posix.close(file)
    return mark in environ


def _kill(pid: int) -> bool:
    try:
        posix.kill(pid, _SIGKILL)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
