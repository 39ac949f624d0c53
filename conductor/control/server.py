"""Server of this process's control socket, with a thread for each request.

A request is one line of JSON, `{"command": …}`; the response is one line of JSON or more. Commands:
"status", "dump" (write the flight recorder), "records" (of the flight recorder) and "follow" (the
same, and those to come). Only processes of the same user are served (`SO_PEERCRED`). A connection
that sends no request within a second is closed.
"""

from __future__ import annotations

import json
import os
import socketserver
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from socket import socket
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

_MAX_REQUEST_BYTES: Final = 4096
_REQUEST_TIMEOUT: Final = 1.0
"""Seconds from the connection to a complete request."""
_SEND_TIMEOUT: Final = 10.0
"""Seconds that the peer may leave a response unread."""
_POLL: Final = 0.2
"""Seconds between two reads of the flight recorder."""
_FOR_EVER: Final = 1e6

Response: TypeAlias = Iterable[dict[str, Any] | bytes]


class ControlServer:
    """`open`, then `serve` in a thread; `close` removes the socket, and the directory if empty.

    `trace` is the path of the trace file.
    """

    def __init__(self, command: str, trace: str | None) -> None:
        self.command = command
        self.trace = trace
        self.path: Path = socket_path(os.getpid())
        self._listener: _Listener | None = None

    def open(self) -> None:
        """Create the socket; it is listening when its name appears. Raises `OSError`."""
        new = self.path.with_suffix(".new")
        try:
            self._listener = self._listening(new)
        except FileNotFoundError:  # the last conductor has just removed the directory
            self._listener = self._listening(new)
        new.chmod(0o600)
        new.rename(self.path)

    def _listening(self, path: Path) -> _Listener:
        private_runtime_directory()
        with suppress(FileNotFoundError):
            path.unlink()
        with usable_path(path) as address:
            return _Listener(address, self.answer)

    def close(self) -> None:
        if self._listener is not None:
            self._listener = None
            with suppress(OSError):
                self.path.unlink()
                self.path.parent.rmdir()  # unless other conductors have sockets there

    def serve(self) -> None:
        """Serve requests until the process ends."""
        if self._listener is not None:
            self._listener.serve_forever(_FOR_EVER)

    def answer(self, request: Any) -> Response:
        commands: dict[str, Callable[[], Response]] = {
            "status": lambda: [_process_status(self.command, self.trace)],
            "dump": self._dump,
            "records": lambda: self._records(follows=False),
            "follow": lambda: self._records(follows=True),
        }
        command = request.get("command") if isinstance(request, dict) else None
        return commands.get(str(command), lambda: [{"error": "unknown command"}])()

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


class _Listener(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: str, answer: Callable[[Any], Response]) -> None:
        super().__init__(address, _Handler)
        self.answer = answer

    def get_request(self) -> tuple[socket, Any]:
        try:
            return super().get_request()
        except OSError:  # no free descriptor, for example
            time.sleep(_POLL)
            raise

    def verify_request(self, request: Any, client_address: object) -> bool:
        return is_same_user(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """The peer is told nothing more: it has left, or no thread can be started."""


class _Handler(socketserver.StreamRequestHandler):
    timeout = _REQUEST_TIMEOUT
    server: _Listener

    def handle(self) -> None:
        try:
            request = decode_loosely(self.rfile.readline(_MAX_REQUEST_BYTES))
        except ValueError:
            request = None
        self.connection.settimeout(_SEND_TIMEOUT)
        for each in self.server.answer(request):
            line = each if isinstance(each, bytes) else json.dumps(each).encode() + b"\n"
            self.wfile.write(line)


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
