"""Other conductors: requests to running ones over their control sockets, and removal of what killed
ones have left. `server` has the form of the requests.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from conductor.control.directory import connect, socket_path, sockets
from conductor.files import lock_directory
from conductor.places import VIEW_PREFIX

__all__ = [
    "NoConductor",
    "ask",
    "conductors",
    "lines",
    "remove_stale_directories",
    "remove_stale_sockets",
]

_STATUS_TIMEOUT: Final = 1.0
_NO_LINE: Final = b'{"error": "it closed the connection without a response"}'
_NO_ANSWER: Final = "no answer within a second"
_FILES: Final = {"acp-mcp-": "s", VIEW_PREFIX: "trace.jsonl*"}
"""Glob patterns of the files that conductors create, by prefix of the directory's name."""
_BRIDGE_ROOT: Final = "/tmp"
"""Fallback of the bridge if the usual path is too long for a socket address."""
_MIN_AGE: Final = 1.0
"""Seconds after its creation before a directory without a lock is stale."""


class NoConductor(Exception):
    """No conductor has the process id, or it does not respond; the text is for the user."""


def ask(pid: int, command: str) -> dict[str, Any]:
    """Send a command; returns the one object of its response. Raises `NoConductor`."""
    answer: dict[str, Any] = json.loads(next(lines(pid, command), _NO_LINE))
    if "error" in answer:
        raise NoConductor(f"conductor {pid}: {answer['error']}")
    return answer


def lines(pid: int, command: str) -> Iterator[bytes]:
    """Send a command; yields the lines of its response as they arrive. Raises `NoConductor`."""
    try:
        with connect(socket_path(pid)) as connection:
            connection.sendall(json.dumps({"command": command}).encode() + b"\n")
            if command == "follow":
                connection.settimeout(None)
            with connection.makefile("rb") as file:
                yield from file
    except (FileNotFoundError, ConnectionRefusedError):
        raise NoConductor(f"no conductor of this user has the process id {pid}") from None
    except OSError as exc:
        raise NoConductor(f"conductor {pid} does not answer: {exc}") from None


def conductors() -> list[dict[str, Any]]:
    """The status (`process_status`) of each running conductor; stale sockets are removed.

    The requests are concurrent. A conductor that does not respond within a second is represented by
    "pid" and "error".
    """
    found: dict[int, dict[str, Any] | None] = {}
    threads = []
    for pid, path in sockets():
        found[pid] = {"pid": pid, "error": _NO_ANSWER}
        threads.append(threading.Thread(target=_add_status, args=(found, pid, path), daemon=True))
    for each in threads:
        each.start()
    end = time.monotonic() + _STATUS_TIMEOUT
    for each in threads:
        each.join(max(0.0, end - time.monotonic()))
    return [status for status in list(found.values()) if status is not None]


def _add_status(found: dict[int, dict[str, Any] | None], pid: int, path: Path) -> None:
    try:
        found[pid] = ask(pid, "status")
    except NoConductor as exc:
        is_gone = _remove_if_stale(path) or not path.exists()
        found[pid] = None if is_gone else {"pid": pid, "error": str(exc)}


def remove_stale_sockets() -> None:
    """Remove the sockets that killed conductors have left."""
    for pid, path in sockets():
        if pid != os.getpid():
            _remove_if_stale(path)


def _remove_if_stale(path: Path) -> bool:
    """Remove a socket of this user that has no listener; returns whether it was removed."""
    with suppress(OSError):
        found = path.lstat()
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
            return False
        try:
            connect(path, 0).close()
        except ConnectionRefusedError:
            path.unlink()
            return True
    return False


def remove_stale_directories() -> Iterator[str]:
    """Remove the temporary directories of killed conductors (MCP bridge, `--view`); yields the path
    of each.

    A conductor holds a lock on each of its directories, which the kernel releases when it ends; so
    a directory in use is never removed. Only directories that are private to this user are
    considered, and only the files in them that conductors create are removed; one with other files
    stays.
    """
    for root in dict.fromkeys((tempfile.gettempdir(), _BRIDGE_ROOT)):
        with suppress(OSError), os.scandir(root) as entries:
            for entry in entries:
                pattern = next((_FILES[each] for each in _FILES if entry.name.startswith(each)), "")
                if pattern and entry.is_dir(follow_symlinks=False):
                    with suppress(OSError):
                        if _remove_stale(entry.path, pattern):
                            yield entry.path


def _remove_stale(directory: str, pattern: str) -> bool:
    """Raises `OSError`, also if the directory has other files."""
    is_new = time.time() - os.lstat(directory).st_ctime < _MIN_AGE
    if is_new or (lock := lock_directory(directory)) is None:
        return False
    try:
        for name in os.listdir(lock):
            if fnmatch(name, pattern):
                os.unlink(name, dir_fd=lock)
        os.rmdir(directory)
    finally:
        os.close(lock)
    return True
