"""A connection without I/O: routed messages and written bytes as lists."""

from __future__ import annotations

import json
from typing import Any

from conductor.errors import ConnectionClosed
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.port import Port


class ListTransport:
    """Accepts everything (or `room` bytes) and records it."""

    def __init__(self) -> None:
        self.written = b""
        self.room = 10**12
        self.broken = False
        self.writing_closed = False

    async def receive(self) -> bytes:
        raise NotImplementedError

    def write_now(self, pieces: Any) -> int:
        if self.broken:
            raise ConnectionClosed("broken")
        data = b"".join(pieces)[: self.room]
        self.room -= len(data)
        self.written += data
        return len(data)

    async def wait_writable(self) -> None:
        raise NotImplementedError

    def close_writing(self) -> None:
        self.writing_closed = True

    def close(self) -> None:
        self.close_writing()

    def messages(self) -> list[Any]:
        """What was written since the last time, as JSON."""
        written, self.written = self.written, b""
        return [json.loads(line) for line in written.splitlines()]


class Flusher:
    """Flushes when told to."""

    def __init__(self) -> None:
        self.dirty: list[Connection] = []

    def schedule_flush(self, connection: Connection) -> None:
        self.dirty.append(connection)

    def flush(self) -> None:
        dirty, self.dirty = self.dirty, []
        for connection in dirty:
            connection.flush()


class Desk:
    """A receiver that records what it gets; its requests are answered by the test."""

    def __init__(self, **options: Any) -> None:
        self.transport = ListTransport()
        self.flusher = Flusher()
        self.events: list[tuple[Any, ...]] = []
        self.calls: list[Any] = []
        self.malformed: list[Any] = []
        self.connection = Connection(self.transport, self, self.flusher, **options)

    def feed(self, *lines: bytes) -> None:
        self.connection.feed(b"".join(line + b"\n" for line in lines))

    def replies(self) -> list[Any]:
        self.flusher.flush()
        return self.transport.messages()

    # -- Receiver ------------------------------------------------------------------------------

    def on_request(self, call: Any, method: str, params: Any) -> None:
        self.calls.append(call)
        self.events.append(("request", call.source_id, method, _bytes(params)))

    def on_notification(self, method: str, params: Any) -> None:
        self.events.append(("notification", method, _bytes(params)))

    def on_notifications(self, run: NotificationBatch) -> None:
        assert len(run.params) > 1
        for each in run.params:
            self.on_notification(run.method, each)

    def on_response(self, call: Any, result: Any, error: Any) -> None:
        assert (result is None) != (error is None)
        self.events.append(("answer", call.method, _bytes(result), _bytes(error)))

    def on_malformed(self, frame: Any, call: Any) -> None:
        self.malformed.append(frame)
        if call is not None:
            self.events.append(("malformed answer", call.method))


class Neighbour(Port):
    """A port that records what it receives."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[Any, ...]] = []
        self.calls: list[Any] = []

    def request(self, call: Any, method: str, params: Any) -> None:
        call.target = self
        self.calls.append(call)
        self.events.append(("request", method, _bytes(params)))

    def notify(self, method: str, params: Any) -> None:
        self.events.append(("notification", method, _bytes(params)))

    def respond(self, call: Any, result: Any, error: Any) -> None:
        self.events.append(("answer", call.method, _bytes(result), _bytes(error)))

    def cancel(self, call: Any) -> None:
        self.events.append(("cancel", call.method))


def cancel(id: Any) -> dict[str, Any]:
    """The cancellation of a request, without `jsonrpc`."""
    return {"method": "$/cancel_request", "params": {"requestId": id}}


def _bytes(payload: Any) -> bytes | None:
    return None if payload is None else bytes(payload)


def client(**options: Any) -> Desk:
    """A connection to a client: malformed lines are answered."""
    return Desk(answers_malformed=True, **options)


def component(**options: Any) -> Desk:
    """A connection to a component: malformed lines are only counted."""
    return Desk(answers_malformed=False, **options)


def send(desk: Desk, method: str = "m") -> int:
    """Send a request without params to the peer; returns its id."""
    return desk.connection.open(InFlightRequest(method, source=None))
