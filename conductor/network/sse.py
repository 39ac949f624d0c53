"""Server-sent events: bytes in, events out; and an event as bytes. Pure.

Of the format (WHATWG HTML, server-sent events) everything is understood, and written is what is
needed: `data`, and `id` where events are numbered.
"""

from __future__ import annotations

import attrs

__all__ = ["EventDecoder", "EventTooLarge", "ServerSentEvent", "encode_event"]


class EventTooLarge(Exception):
    """An event is longer than what we take."""


@attrs.frozen
class ServerSentEvent:
    """One event; `id` is the last one that the stream has named."""

    data: bytes
    id: str | None = None
    type: str = "message"


@attrs.define
class EventDecoder:
    """Reads a stream of events, however it was split. `limit` is the longest one, in bytes."""

    limit: int
    retry: float | None = attrs.field(default=None, init=False)
    """Seconds that the server asks to wait before its stream is opened again."""
    _pieces: list[bytes] = attrs.field(factory=list, init=False)
    """Of a line that is not complete."""
    _size: int = attrs.field(default=0, init=False)
    _data: list[bytes] = attrs.field(factory=list, init=False)
    _id: str | None = attrs.field(default=None, init=False)
    _type: str = attrs.field(default="", init=False)
    _after_return: bool = attrs.field(default=False, init=False)
    _begun: bool = attrs.field(default=False, init=False)

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that this chunk completes. Raises `EventTooLarge`."""
        if not chunk:
            return []
        after_return, self._after_return = self._after_return, chunk.endswith(b"\r")
        if after_return and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # of a line end that was split
        lines = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events: list[ServerSentEvent] = []
        for line in lines[:-1]:
            self._keep(line)
            self._take(b"".join(self._pieces), events)
            self._pieces.clear()
        self._keep(lines[-1])
        return events

    def _keep(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > self.limit:
            raise EventTooLarge

    def _take(self, line: bytes, events: list[ServerSentEvent]) -> None:
        if not self._begun:
            self._begun = True
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            if self._data:
                events.append(
                    ServerSentEvent(b"\n".join(self._data), self._id, self._type or "message")
                )
            self._data, self._type, self._size = [], "", 0
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
                return
            case b"id" if b"\0" not in value:
                self._id = value.decode(errors="replace")
            case b"event":
                self._type = value.decode(errors="replace")
            case b"retry" if value.isdigit():
                self.retry = int(value) / 1000
        self._size -= len(line)


def encode_event(data: bytes, id: int | None = None) -> bytes:
    """One line as an event."""
    numbered = b"" if id is None else b"id: %d\n" % id
    return b"%sdata: %s\n\n" % (numbered, data)
