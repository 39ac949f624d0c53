"""Resumable server-sent event streams, with bounded buffers.

Sent events are kept within bounds, so that a broken stream can be resumed. Unsent events are never
dropped while a client reads the stream: it is *slow* then, and the producer waits. Without a
reader, a stream with more than 4 MiB of unsent events is lost and its request cancelled; the
standing stream, which belongs to no request, drops its oldest events instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs
import trio

__all__ = ["STANDING_STREAM", "EventStream", "send_events"]

STANDING_STREAM: Final = "0"
"""Name of the stream that belongs to no request."""

_MAX_REPLAY_BYTES: Final = 1024 * 1024
"""Bytes of sent events that are kept for a resume."""
_SLOW_READER_BYTES: Final = 1024 * 1024
"""Unsent bytes above which the producer of a stream with a reader waits."""
_MAX_UNREAD_BYTES: Final = 4 * 1024 * 1024
"""Unsent bytes that a stream without a reader may have."""
_WRITE_SIZE: Final = 64 * 1024
"""Bytes of events that are joined into one write."""
_EVENT_OVERHEAD: Final = 200
"""Estimated size of an event without its data, in bytes."""


@attrs.define(eq=False)
class EventStream:
    """One event stream, independent of its readers. `changed` is called when its state changes."""

    name: str
    changed: Callable[[EventStream], None]
    readers: int = 0
    done: bool = False
    lost: bool = False
    """Whether it was given up and its events dropped."""
    unread: int = 0
    _events: deque[tuple[int, bytes]] = attrs.field(factory=deque)
    _kept: int = 0
    _last: int = 0
    _delivered: int = 0
    """Number of the newest sent event."""
    _more: trio.Event = attrs.field(factory=trio.Event)

    @property
    def slow(self) -> bool:
        """Whether a client reads it, but more slowly than it is filled."""
        return self.readers > 0 and self.unread > _SLOW_READER_BYTES and not self.done

    @property
    def size(self) -> int:
        return self._kept + self.unread

    def put(self, line: bytes, *, last: bool = False) -> None:
        if self.lost:
            return
        self._last += 1
        self._events.append((self._last, line))
        self.unread += len(line) + _EVENT_OVERHEAD
        self.done = self.done or last
        if not self.readers and not last:
            self._bound_unread()
        self._wake()

    def end(self) -> None:
        """Mark the stream as complete."""
        self.done = True
        self._wake()

    def after(self, number: int) -> list[tuple[int, bytes]]:
        """Return the kept events after event `number`, as `(number, line)`."""
        count = len(self._events)
        begin = max(0, count - max(0, self._last - number))
        return [self._events[index] for index in range(begin, count)]

    def sent(self, number: int) -> None:
        """Record that events up to `number` were sent; drops the oldest sent ones above the
        bound."""
        for at, line in self.after(self._delivered):
            if at <= number:
                self.unread -= len(line) + _EVENT_OVERHEAD
                self._kept += len(line) + _EVENT_OVERHEAD
        self._delivered = max(self._delivered, number)
        while (
            self._kept > _MAX_REPLAY_BYTES and len(self._events) > 1 and self._events[0][0] < number
        ):
            self._kept -= len(self._events.popleft()[1]) + _EVENT_OVERHEAD
        self.changed(self)

    async def wait_more(self) -> None:
        await self._more.wait()

    def _bound_unread(self) -> None:
        while self.unread > _MAX_UNREAD_BYTES and self._events:
            if self.name != STANDING_STREAM:
                self._events.clear()
                self.unread = self._kept = 0
                self.lost = self.done = True
                return
            number, line = self._events.popleft()
            if number > self._delivered:
                self.unread -= len(line) + _EVENT_OVERHEAD
            else:
                self._kept -= len(line) + _EVENT_OVERHEAD

    def _wake(self) -> None:
        self._more.set()
        self._more = trio.Event()
        self.changed(self)


async def send_events(
    stream: EventStream, after: int, headers: list[tuple[bytes, bytes]], receive: Any, send: Any
) -> bool:
    """Send the events after number `after` until the stream ends; true if the client disconnected
    before."""
    head = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"), *headers]
    gone = False
    stream.readers += 1
    try:
        await send({"type": "http.response.start", "status": 200, "headers": head})
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                nonlocal gone
                while (await receive())["type"] != "http.disconnect":
                    pass
                gone = True
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            sent = after
            while True:
                waiting = stream.after(sent)
                if not waiting and stream.done:
                    break
                if not waiting:
                    await stream.wait_more()
                    continue
                for sent, body in _bodies(stream.name, waiting):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                    stream.sent(sent)
            await send({"type": "http.response.body", "body": b""})
            nursery.cancel_scope.cancel()
    finally:
        stream.readers -= 1
        stream.changed(stream)
    return gone


def _bodies(name: str, events: list[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Yield `(number of the last event, body)` of several events joined into one write."""
    parts: list[bytes] = []
    size = 0
    for number, line in events:
        parts.append(b"id: %b.%d\ndata: %b\n\n" % (name.encode(), number, line[:-1]))
        size += len(line)
        if size > _WRITE_SIZE or number == events[-1][0]:
            yield number, b"".join(parts)
            parts, size = [], 0
