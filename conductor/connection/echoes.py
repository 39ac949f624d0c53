"""A large value that a proxy sends on as it got it is not checked a second time. Pure.

Most proxies that are programs send on what they do not change, and whether a value of 1 MiB is JSON
and UTF-8 takes half a millisecond to find out: in a chain of eight of them, nine times. That its
bytes are those which we sent to the proxy a moment ago, a comparison tells in a tenth of the time.

Nothing is taken on trust for it. All that stands around the value in the line is decoded as always,
with a small value in its place; and where one JSON value may stand, any other may. What makes it
certain that the small one stood there as a value, and was found again in the place where it was
put, is that its text occurs nowhere else in what is decoded, that it cannot overlap with itself,
and that a string which it might have continued would end behind its second byte, where no JSON
goes on with a letter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

import attrs
import msgspec
from msgspec import UNSET, Raw

from conductor.frames import Frame, decode
from conductor.messages import Message, Payload

__all__ = ["LARGE", "Echoes"]

LARGE: Final = 65536
"""Bytes from which on a value is remembered, and a line is looked at."""
_REMEMBERED: Final = 6 * 1024 * 1024
"""Bytes of values that are kept for one proxy, at most."""
_LOOKED_FOR: Final = 8
"""Of how many values each line is looked through."""
_AROUND: Final = 512
"""Bytes that may stand before a value, and behind it."""
_BEGINS: Final = 64
_STAND_IN: Final = b'{"stand-in":0}'
_ENVELOPES: Final = frozenset({"proxy/successor", "_proxy/successor"})
_CONTAINERS: Final = frozenset(b"{[")


@attrs.define(eq=False, repr=False)
class Echoes:
    """The large values that one proxy got and has not sent on, oldest first."""

    _values: deque[Raw] = attrs.field(factory=deque, init=False)
    _size: int = attrs.field(default=0, init=False)

    def sent(self, pieces: Sequence[bytes | Payload]) -> None:
        """Remember the values among the pieces of lines that the proxy is sent, while there is
        room: those that it got first come back first.

        Only what was checked when it came is `Raw`; what a plugin wrote is bytes.
        """
        for piece in pieces:
            if (
                type(piece) is Raw
                and LARGE <= len(piece) <= _REMEMBERED - self._size
                and memoryview(piece)[0] in _CONTAINERS
            ):
                self._values.append(piece)
                self._size += len(piece)

    def decode(self, line: bytes) -> Frame:
        """The frame that a line of the proxy's holds: what `frames.decode` says.

        A proxy keeps the order, so what came before a value that it sends on is forgotten with it;
        and anything else of that size is most likely what it made of the oldest.
        """
        for count, value in enumerate(islice(self._values, _LOOKED_FOR), 1):
            start = line.find(memoryview(value)[:_BEGINS], 0, _AROUND + _BEGINS)
            behind = len(line) - start - len(value)
            if start >= 0 and behind <= _AROUND and line.startswith(value, start):
                self._forget(count)
                return _with(value, line, start) or decode(line)
        self._forget(1)
        return decode(line)

    def _forget(self, count: int) -> None:
        """The oldest of them."""
        for _ in range(min(count, len(self._values))):
            self._size -= len(self._values.popleft())


def _with(value: Raw, line: bytes, start: int) -> Message | None:
    """The message in a line that holds a known value from `start` on, if it is one."""
    end = start + len(value)
    head, tail = line[:start], line[end:]
    if _STAND_IN in head or _STAND_IN in tail:
        return None
    message = decode(head + _STAND_IN + tail)
    if type(message) is not Message:
        return None
    name = "result" if message.params is UNSET else "params"
    payload = getattr(message, name)
    before, found, behind = bytes(payload if payload is not UNSET else b"").partition(_STAND_IN)
    if not found:
        return None
    if before or behind:
        # How deeply all of it is nested nobody has looked at. Whoever opens an envelope does.
        if message.method not in _ENVELOPES:
            return None
        value = Raw(memoryview(line)[start - len(before) : end + len(behind)])
    return msgspec.structs.replace(message, **{name: value})
