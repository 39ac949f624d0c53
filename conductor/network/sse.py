"""Decoder and encoder for server-sent events (WHATWG HTML, "Server-sent events"). Pure.

The decoder accepts the whole format, and ignores `retry`; the encoder writes `data`, and `id` where
events are numbered.
"""

from __future__ import annotations

import attrs

__all__ = ["EventDecoder", "EventTooLarge", "ServerSentEvent", "encode_event"]


class EventTooLarge(Exception):
    """An event is larger than the limit."""


@attrs.frozen
class ServerSentEvent:
    """One event. `id`: the last event id of the stream."""

    data: bytes
    id: str | None = None
    type: str = "message"


@attrs.define
class EventDecoder:
    """Incremental decoder. `limit`: maximum size of an event in bytes."""

    limit: int
    _pieces: list[bytes] = attrs.field(factory=list, init=False)
    """Parts of the incomplete last line."""
    _size: int = attrs.field(default=0, init=False)
    _data: list[bytes] = attrs.field(factory=list, init=False)
    _id: str | None = attrs.field(default=None, init=False)
    _type: str = attrs.field(default="", init=False)
    _after_return: bool = attrs.field(default=False, init=False)
    _begun: bool = attrs.field(default=False, init=False)

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Decode a chunk; return the events that it completes. Raises `EventTooLarge`."""
        if not chunk:
            return []
        after_return, self._after_return = self._after_return, chunk.endswith(b"\r")
        if after_return and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # CRLF split between chunks
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
        self._size -= len(line)


def encode_event(data: bytes, id: int | None = None) -> bytes:
    """Encode one line as an event, with its number as `id` if given."""
    numbered = b"" if id is None else b"id: %d\n" % id
    return b"%sdata: %s\n\n" % (numbered, data)
