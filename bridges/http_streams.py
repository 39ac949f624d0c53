"""Server-sent event streams that can be resumed, and how much of one is kept.

What a client was sent is kept within bounds, for a stream that breaks. What it was not sent yet is
never dropped while somebody reads: the stream is *slow* then, and whoever feeds it waits. Where
nobody reads and too much has come together, the stream is given up; only the standing one, which
belongs to no request, forgets the oldest instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs
import trio

__all__ = ["STANDING_STREAM", "EventStream", "send_events"]

STANDING_STREAM: Final = "0"
"""The name of the stream that belongs to no request."""

_MAX_REPLAY_BYTES: Final = 1024 * 1024
"""Bytes of what a client has that are kept for the case that it has not."""
_SLOW_READER_BYTES: Final = 1024 * 1024
"""Bytes that wait for a reader before whoever feeds the stream waits, too."""
_MAX_UNREAD_BYTES: Final = 4 * 1024 * 1024
"""Bytes that wait for a reader to come back."""
_WRITE_SIZE: Final = 64 * 1024
"""Bytes that are written at once, when that many wait."""
_EVENT_OVERHEAD: Final = 200
"""What an event takes beside its bytes."""


@attrs.define(eq=False)
class EventStream:
    """A stream, whoever reads it at the moment. `changed` is called when it is slow or no more."""

    name: str
    changed: Callable[[EventStream], None]
    readers: int = 0
    done: bool = False
    lost: bool = False
    """It was given up: what was in it is gone."""
    unread: int = 0
    _events: deque[tuple[int, bytes]] = attrs.field(factory=deque)
    _kept: int = 0
    _last: int = 0
    _delivered: int = 0
    """The number of the newest event that a client was sent."""
    _more: trio.Event = attrs.field(factory=trio.Event)

    @property
    def slow(self) -> bool:
        """Whether somebody reads it, but not as fast as it is fed."""
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
        """There is no more to come."""
        self.done = True
        self._wake()

    def after(self, number: int) -> list[tuple[int, bytes]]:
        """What comes after this event, as far as it is there."""
        count = len(self._events)
        begin = max(0, count - max(0, self._last - number))
        return [self._events[index] for index in range(begin, count)]

    def sent(self, number: int) -> None:
        """A client was sent the stream to here."""
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
    """Send what the stream has and gets, until it ends; true if the client went before that."""
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
    """Events as they are written, several at a time, and the number of the last one of each."""
    parts: list[bytes] = []
    size = 0
    for number, line in events:
        parts.append(b"id: %b.%d\ndata: %b\n\n" % (name.encode(), number, line[:-1]))
        size += len(line)
        if size > _WRITE_SIZE or number == events[-1][0]:
            yield number, b"".join(parts)
            parts, size = [], 0
