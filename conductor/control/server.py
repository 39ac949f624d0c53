"""The control socket of this process, served by threads: one that reads questions, and one for each
answer. A connection without a question is closed after a second, so that idle ones stop no other.

Only processes of the same user are answered (`SO_PEERCRED`). Commands: "status", "dump" (write the
flight recorder), "records" and "follow" (the records of the flight recorder, and those to come).
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
from typing import Any, Final, TypeAlias

import attrs

from conductor.control.directory import (
    is_same_user,
    private_runtime_directory,
    socket_path,
    usable_path,
)
from conductor.control.registry import flights
from conductor.control.status import process_status

__all__ = ["ControlServer"]

_MAX_ANSWERED: Final = 16
"""Questions that are answered at the same time, besides the followers."""
_MAX_FOLLOWERS: Final = 16
_MAX_WAITING: Final = 64
"""Connections of which the question has not come yet: the oldest is closed if there are more."""
_MAX_QUESTION: Final = 4096
_QUESTION_TIMEOUT: Final = 1.0
_TIMEOUT: Final = 10.0
"""Seconds that the other end may leave an answer unread."""
_POLL: Final = 0.2
"""Seconds between two looks at the flight recorder."""

Answer: TypeAlias = Iterable[dict[str, Any] | bytes]


@attrs.define(eq=False)
class _Waiting:
    """A connection of which the question has not come yet."""

    connection: socket.socket
    deadline: float = attrs.field(factory=lambda: time.monotonic() + _QUESTION_TIMEOUT)
    _data: bytes = b""

    def __attrs_post_init__(self) -> None:
        self.connection.setblocking(False)

    def read(self) -> bool:
        """Read what has come; returns whether there will be no more."""
        try:
            more = self.connection.recv(_MAX_QUESTION)
        except BlockingIOError:
            return False
        except OSError:
            more = b""
        self._data += more
        return not more or b"\n" in more or len(self._data) >= _MAX_QUESTION

    def question(self) -> Any:
        """The question; `None` if it is not JSON."""
        try:
            return json.loads(self._data.partition(b"\n")[0])
        except (ValueError, RecursionError):
            return None


@attrs.define(eq=False)
class ControlServer:
    """`open`, then `serve` in a thread; `close` removes the socket, and the directory if empty."""

    command: str
    trace: str | None
    """The path of the trace file."""
    path: Path = attrs.field(init=False)
    _listener: socket.socket = attrs.field(factory=lambda: socket.socket(socket.AF_UNIX))
    _is_open: bool = attrs.field(default=False, init=False)
    _waiting: dict[int, _Waiting] = attrs.field(factory=dict, init=False)
    """By descriptor, the oldest first."""
    _places: threading.Semaphore = attrs.field(
        factory=lambda: threading.Semaphore(_MAX_ANSWERED), init=False
    )
    _followers: threading.Semaphore = attrs.field(
        factory=lambda: threading.Semaphore(_MAX_FOLLOWERS), init=False
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
        self._listener.listen(_MAX_WAITING)
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
        """Answer questions until the process ends."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        waiting = self._waiting
        while True:
            oldest = next(iter(waiting.values()), None)
            rest = None if oldest is None else max(0.0, oldest.deadline - time.monotonic())
            # An `accept` that waits reserves a descriptor on Linux.
            for fd, _ in poll.poll(None if rest is None else rest * 1000 + 1):
                if fd == self._listener.fileno():
                    self._accept(poll)
                elif (each := waiting[fd]).read():
                    self._end_waiting(poll, each)
                    self._answer_in_thread(each)
            now = time.monotonic()
            for each in [each for each in waiting.values() if each.deadline <= now]:
                self._end_waiting(poll, each)
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
        if len(self._waiting) >= _MAX_WAITING:
            oldest = next(iter(self._waiting.values()))
            self._end_waiting(poll, oldest)
            oldest.connection.close()
        self._waiting[connection.fileno()] = _Waiting(connection)
        poll.register(connection, select.POLLIN)

    def _end_waiting(self, poll: select.poll, each: _Waiting) -> None:
        poll.unregister(each.connection)
        del self._waiting[each.connection.fileno()]

    def _answer_in_thread(self, asked: _Waiting) -> None:
        """Answer a question, unless as many are being answered as may be."""
        question = asked.question()
        follows = isinstance(question, dict) and question.get("command") == "follow"
        places = self._followers if follows else self._places
        if not places.acquire(blocking=False):
            with asked.connection, suppress(OSError):
                asked.connection.sendall(_line({"error": "it answers too many others"}))
            return
        arguments = (asked.connection, question, places)
        threading.Thread(target=self._serve_one, args=arguments, daemon=True).start()

    def _serve_one(
        self, connection: socket.socket, question: Any, places: threading.Semaphore
    ) -> None:
        try:
            with connection, suppress(OSError):
                connection.settimeout(_TIMEOUT)
                for each in self._answer(question):
                    connection.sendall(each if isinstance(each, bytes) else _line(each))
        finally:
            places.release()

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


def _line(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def _unknown() -> Answer:
    return [{"error": "unknown command"}]
