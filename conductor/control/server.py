"""The control socket of this process, served by threads: one that accepts, one for each question.

Only processes of the same user are answered (`SO_PEERCRED`). Commands: "status", "dump" (write the
flight recorder), "records" and "follow" (the records of the flight recorder, and those to come).
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from conductor.control.directory import private_directory, socket_path, usable_path
from conductor.control.registry import flights
from conductor.control.status import process_status

__all__ = ["ControlServer"]

_MAX_CONNECTIONS: Final = 16
_MAX_QUESTION: Final = 4096
_TIMEOUT: Final = 10.0
_POLL: Final = 0.2
"""Seconds between two looks at the flight recorder."""

Answer: TypeAlias = Iterable[dict[str, Any] | bytes]


@attrs.define(eq=False)
class ControlServer:
    """`open`, then `serve` in a thread; `close` removes the socket, and the directory if empty."""

    command: str
    trace: str | None
    """The path of the trace file."""
    path: Path = attrs.field(init=False)
    _listener: socket.socket = attrs.field(factory=lambda: socket.socket(socket.AF_UNIX))
    _is_open: bool = attrs.field(default=False, init=False)
    _places: threading.BoundedSemaphore = attrs.field(
        factory=lambda: threading.BoundedSemaphore(_MAX_CONNECTIONS), init=False
    )

    def open(self) -> None:
        """Create the socket; it is listening when its name appears. Raises `OSError`."""
        self.path = socket_path(os.getpid())
        new = self.path.with_suffix(".new")
        try:
            self._bind(new)
        except FileNotFoundError:  # the last conductor has just removed the directory
            self._bind(new)
        new.chmod(0o600)
        self._listener.listen(_MAX_CONNECTIONS)
        new.rename(self.path)
        self._is_open = True

    def _bind(self, path: Path) -> None:
        private_directory(path.parent)
        with suppress(FileNotFoundError):
            path.unlink()
        with usable_path(path) as address:
            self._listener.bind(address)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            with suppress(OSError):
                self.path.unlink()
                self.path.parent.rmdir()  # unless other conductors have sockets there

    def serve(self) -> None:
        """Answer questions until the process ends."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        while True:
            poll.poll()  # an `accept` that waits reserves a descriptor on Linux
            try:
                connection, _ = self._listener.accept()
            except OSError:  # no free descriptor, for example
                time.sleep(_POLL)
                continue
            if not _is_same_user(connection) or not self._places.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._serve_one, args=(connection,), daemon=True).start()

    def _serve_one(self, connection: socket.socket) -> None:
        try:
            with connection, suppress(OSError, ValueError):
                connection.settimeout(_TIMEOUT)
                with connection.makefile("rb") as file:
                    question = json.loads(file.readline(_MAX_QUESTION))
                for each in self._answer(question):
                    line = each if isinstance(each, bytes) else json.dumps(each).encode() + b"\n"
                    connection.sendall(line)
        finally:
            self._places.release()

    def _answer(self, question: Any) -> Answer:
        commands: dict[str, Callable[[], Answer]] = {
            "status": lambda: [process_status(self.command, self.trace)],
            "dump": self._dump,
            "records": lambda: self._records(follows=False),
            "follow": lambda: self._records(follows=True),
        }
        command = question.get("command") if isinstance(question, dict) else None
        return commands.get(str(command), _unknown)()

    def _dump(self) -> Answer:
        if self.trace is not None:
            return [{"file": self.trace}]
        from conductor.control.flight import write_flight

        path = write_flight(flights(), "request")
        return [{"error": "there is nothing to write"} if path is None else {"file": str(path)}]

    def _records(self, *, follows: bool) -> Iterator[dict[str, Any] | bytes]:
        """A line that says where they are; then the records, if they are in no file."""
        from conductor.control.flight import FlightReader

        yield {"file": self.trace}
        if self.trace is None:
            reader = FlightReader()
            yield reader.read()
            while follows:
                time.sleep(_POLL)
                yield reader.read()


def _unknown() -> Answer:
    return [{"error": "unknown command"}]


def _is_same_user(connection: socket.socket) -> bool:
    """Whether the other end belongs to this user; where it cannot be asked, the directory's mode
    has decided."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, size))
    return bool(user == os.geteuid())
