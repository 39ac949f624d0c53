"""Questions to a running conductor: one line of JSON each, answered with lines of JSON."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from conductor.control.directory import connect, socket_path, sockets

__all__ = ["NoConductor", "ask", "conductors", "is_stale", "lines", "remove_if_stale"]

_STATUS_TIMEOUT: Final = 1.0
_NOTHING: Final = b'{"error": "it has closed the connection"}'
_NO_ANSWER: Final = "no answer within a second"


class NoConductor(Exception):
    """There is no conductor with this process id, or it does not answer; the text says so."""


def ask(pid: int, command: str) -> dict[str, Any]:
    """The answer to a command. Raises `NoConductor`."""
    answer: dict[str, Any] = json.loads(next(lines(pid, command), _NOTHING))
    if "error" in answer:
        raise NoConductor(f"conductor {pid}: {answer['error']}")
    return answer


def lines(pid: int, command: str) -> Iterator[bytes]:
    """The lines of the answer to a command, as they come. Raises `NoConductor`."""
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
    """The status of each running conductor; sockets that ended ones have left are removed.

    All are asked at the same time. One that does not answer within a second has "pid" and "error".
    """
    found: dict[int, dict[str, Any] | None] = {}
    asking = []
    for pid, path in sockets():
        found[pid] = {"pid": pid, "error": _NO_ANSWER}
        asking.append(threading.Thread(target=_ask_status, args=(found, pid, path), daemon=True))
    for each in asking:
        each.start()
    end = time.monotonic() + _STATUS_TIMEOUT
    for each in asking:
        each.join(max(0.0, end - time.monotonic()))
    return [status for status in list(found.values()) if status is not None]


def _ask_status(found: dict[int, dict[str, Any] | None], pid: int, path: Path) -> None:
    try:
        found[pid] = ask(pid, "status")
    except NoConductor as exc:
        is_gone = remove_if_stale(path) or not path.exists()
        found[pid] = None if is_gone else {"pid": pid, "error": str(exc)}


def remove_if_stale(path: Path) -> bool:
    """Remove a socket without a listener; true if there was one."""
    if is_stale(path):
        with suppress(OSError):
            path.unlink()
            return True
    return False


def is_stale(path: Path) -> bool:
    """Whether a socket has no listener."""
    try:
        connect(path).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False
