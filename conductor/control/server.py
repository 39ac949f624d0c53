"""Server of this process's control socket: one thread reads requests, one more answers each.

A request is one line of JSON, `{"command": …}`; the response is one line of JSON or more. Commands:
"status", "dump" (write the flight recorder), "records" (of the flight recorder) and "follow" (the
same, and those to come). Only processes of the same user are served (`SO_PEERCRED`). A connection
that sends no request within a second is closed, so idle connections block no other.
"""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from conductor import __version__
from conductor.control.directory import (
    private_runtime_directory,
    socket_path,
    usable_path,
)
from conductor.control.running_chains import flights, running_chains
from conductor.json_values import decode_loosely
from conductor.network.peer_user import is_same_user

if TYPE_CHECKING:
    import psutil

__all__ = ["ControlServer"]

_MAX_REQUESTS: Final = 16
"""Requests answered at the same time, not counting "follow"."""
_MAX_FOLLOWERS: Final = 16
_MAX_PENDING: Final = 64
"""Connections without a complete request; the oldest is closed if there are more."""
_MAX_REQUEST_BYTES: Final = 4096
_REQUEST_TIMEOUT: Final = 1.0
"""Seconds from the connection to a complete request."""
_SEND_TIMEOUT: Final = 10.0
"""Seconds that the peer may leave a response unread."""
_POLL: Final = 0.2
"""Seconds between two reads of the flight recorder."""

Response: TypeAlias = Iterable[dict[str, Any] | bytes]


class _RequestReader:
    """A connection without a complete request."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.connection.setblocking(False)
        self.deadline = time.monotonic() + _REQUEST_TIMEOUT
        self._data = b""

    def read(self) -> bool:
        """Read available bytes; returns whether the request is complete, too long or cut off."""
        try:
            more = self.connection.recv(_MAX_REQUEST_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            more = b""
        self._data += more
        return not more or b"\n" in more or len(self._data) >= _MAX_REQUEST_BYTES

    def request(self) -> Any:
        """The decoded request; `None` if it is not JSON."""
        try:
            return decode_loosely(self._data.partition(b"\n")[0])
        except ValueError:
            return None


class ControlServer:
    """`open`, then `serve` in a thread; `close` removes the socket, and the directory if empty.

    `trace` is the path of the trace file.
    """

    path: Path

    def __init__(self, command: str, trace: str | None) -> None:
        self.command = command
        self.trace = trace
        self._listener = socket.socket(socket.AF_UNIX)
        self._is_open = False
        self._pending: dict[int, _RequestReader] = {}
        """By descriptor, the oldest first."""
        self._request_slots = threading.Semaphore(_MAX_REQUESTS)
        self._follower_slots = threading.Semaphore(_MAX_FOLLOWERS)

    def open(self) -> None:
        """Create the socket; it is listening when its name appears. Raises `OSError`."""
        self.path = socket_path(os.getpid())
        new = self.path.with_suffix(".new")
        try:
            self._bind(new)
        except FileNotFoundError:  # the last conductor has just removed the directory
            self._bind(new)
        new.chmod(0o600)
        self._listener.listen(_MAX_PENDING)
        new.rename(self.path)
        self._is_open = True

    def _bind(self, path: Path) -> None:
        private_runtime_directory()
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
        """Serve requests until the process ends."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        pending = self._pending
        while True:
            oldest = next(iter(pending.values()), None)
            rest = None if oldest is None else max(0.0, oldest.deadline - time.monotonic())
            # An `accept` that waits reserves a descriptor on Linux.
            for fd, _ in poll.poll(None if rest is None else rest * 1000 + 1):
                if fd == self._listener.fileno():
                    self._accept(poll)
                elif (each := pending[fd]).read():
                    self._forget(poll, each)
                    self._answer_in_thread(each)
            now = time.monotonic()
            for each in [each for each in pending.values() if each.deadline <= now]:
                self._forget(poll, each)
                each.connection.close()

    def _accept(self, poll: select.poll) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # no free descriptor, for example
            time.sleep(_POLL)
            return
        if not is_same_user(connection):
            connection.close()
            return
        if len(self._pending) >= _MAX_PENDING:
            oldest = next(iter(self._pending.values()))
            self._forget(poll, oldest)
            oldest.connection.close()
        self._pending[connection.fileno()] = _RequestReader(connection)
        poll.register(connection, select.POLLIN)

    def _forget(self, poll: select.poll, each: _RequestReader) -> None:
        poll.unregister(each.connection)
        del self._pending[each.connection.fileno()]

    def _answer_in_thread(self, pending: _RequestReader) -> None:
        """Answer a request in a thread, or with an error if too many are being answered."""
        request = pending.request()
        follows = isinstance(request, dict) and request.get("command") == "follow"
        slots = self._follower_slots if follows else self._request_slots
        if not slots.acquire(blocking=False):
            with pending.connection, suppress(OSError):
                pending.connection.sendall(_line({"error": "too many requests at the same time"}))
            return
        arguments = (pending.connection, request, slots)
        threading.Thread(target=self._serve_one, args=arguments, daemon=True).start()

    def _serve_one(
        self, connection: socket.socket, request: Any, slots: threading.Semaphore
    ) -> None:
        try:
            with connection, suppress(OSError):
                connection.settimeout(_SEND_TIMEOUT)
                for each in self._answer(request):
                    connection.sendall(each if isinstance(each, bytes) else _line(each))
        finally:
            slots.release()

    def _answer(self, request: Any) -> Response:
        commands: dict[str, Callable[[], Response]] = {
            "status": lambda: [_process_status(self.command, self.trace)],
            "dump": self._dump,
            "records": lambda: self._records(follows=False),
            "follow": lambda: self._records(follows=True),
        }
        command = request.get("command") if isinstance(request, dict) else None
        return commands.get(str(command), _unknown)()

    def _dump(self) -> Response:
        if self.trace is not None:
            return [{"file": self.trace}]
        from conductor.control.flight import write_flight

        path = write_flight(flights(), "request")
        return [{"error": "there is nothing to write"} if path is None else {"file": str(path)}]

    def _records(self, *, follows: bool) -> Iterator[dict[str, Any] | bytes]:
        """A line with the path of the trace file; without such a file, `null` and the records."""
        from conductor.control.flight import FlightReader

        yield {"file": self.trace}
        if self.trace is None:
            reader = FlightReader()
            yield reader.read()
            while follows:
                time.sleep(_POLL)
                yield reader.read()


def _process_status(command: str, trace: str | None) -> dict[str, Any]:
    """Command, times, memory, and the status of each chain. Times are in seconds."""
    import psutil  # 20 ms, which no start waits for

    process = psutil.Process()
    return {
        "pid": process.pid,
        "version": __version__,
        "command": command,
        "started": process.create_time(),
        "memory": _memory(process),
        "memory_of_components": sum(map(_memory, process.children(recursive=True))),
        "trace": trace,
        "chains": [each.status() for each in running_chains()],
    }


def _memory(process: psutil.Process) -> int:
    """Resident bytes of a process; 0 if it has ended."""
    import psutil

    with suppress(psutil.Error):
        return process.memory_info().rss
    return 0


def _line(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def _unknown() -> Response:
    return [{"error": "unknown command"}]
