"""Cuts what was read into runs of notifications and single lines. Pure.

An agent streams: line after line of `session/update`, which nobody on the way wants to look into.
Such a run is checked as a whole and sent on as it is, which costs a third of what its lines would
cost one by one (0.3 µs for a line of 100 bytes; perf.md T4). Nothing is taken on trust for it. A
run is where these hold together, and whatever fails one of them goes line by line:

- every line begins with `_FIRST` and ends with `}}`;
- all of it decodes as so many objects, with the members of an update and no other, however they
  are spelled: an `id` behind the params, or in escapes, is a member too. No JSON value goes on
  from `}` to `{` over nothing but a newline, so no object is on two lines, and none shares one;
- it is UTF-8, which msgspec does not look at in what it skips.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from itertools import accumulate, islice, repeat
from typing import Final, Literal, TypeAlias

import msgspec

from conductor.frames import UNUSUAL, Notification, decode_notification, utf8_problem
from conductor.messages import Payload

__all__ = ["UPDATE", "Run", "cut"]

UPDATE: Final = "session/update"
_HEAD: Final = b'{"jsonrpc":"2.0","method":"session/update","params":'
_TAIL: Final = b"}\n"
_FIRST: Final = _HEAD + b"{"
_LAST: Final = b"}" + _TAIL
_SEAM: Final = _LAST + _FIRST
_WITH_ID: Final = b'{"jsonrpc":"2.0","id"'
"""How most requests and answers begin: not worth an exception."""
_SHORT: Final = 512


class _Params(msgspec.Struct, gc=False):
    """Any object."""


class _Update(msgspec.Struct, gc=False, frozen=True, forbid_unknown_fields=True):
    jsonrpc: Literal["2.0"]
    method: Literal["session/update"]
    params: _Params


_decode_updates: Final = msgspec.json.Decoder(_Update).decode_lines
_decode_whole: Final = msgspec.json.Decoder(Notification).decode_lines
_BRACE: Final = ord("{")


class Run:
    """Consecutive notifications of one method, all with objects as params."""

    __slots__ = ("_lines", "_params", "method")

    def __init__(
        self, method: str, params: list[Payload] | None = None, lines: bytes | None = None
    ) -> None:
        self.method = method
        self._params = params
        self._lines = lines

    @property
    def params(self) -> list[Payload]:
        """The params of each, in order."""
        if self._params is None:
            assert self._lines is not None
            self._params = [each.params for each in _decode_whole(self._lines)]
        return self._params

    def framed(self, head: bytes, tail: bytes) -> bytes:
        """The notifications as lines, with `head` and `tail` around the params of each."""
        lines = self._lines
        if lines is None:
            return b"%b%b%b" % (head, (tail + head).join(self.params), tail)
        if head == _HEAD:
            return lines
        between = lines[len(_HEAD) : -len(_TAIL)].replace(_TAIL + _HEAD, tail + head)
        return b"%b%b%b" % (head, between, tail)


Part: TypeAlias = Run | bytes


def cut(block: bytes) -> Iterator[Part]:
    """The runs and the single lines, each with its newline, of a block of whole lines, in order."""
    lines = BytesIO(block).readlines()  # by memchr: four times as fast as bytes.split
    if _is_one_run(block, len(lines)):
        yield Run(UPDATE, lines=block)
        return
    closings = list(accumulate(map(len, lines), initial=-len(_LAST)))
    seams = bytes(map(block.startswith, repeat(_SEAM), closings))
    done, count = 0, len(lines)
    while done < count:
        if not lines[done].startswith(_FIRST):
            end = done + 1
            while end < count and not lines[end].startswith(_FIRST):
                end += 1
            yield from lines[done:end] if end - done == 1 else _cut_line_by_line(lines[done:end])
            done = end
            continue
        end = seams.find(0, done + 1)
        end -= not block.startswith(_LAST, closings[end])
        some = block[closings[done] + len(_LAST) : closings[end] + len(_LAST)]
        if end - done > 1 and _are_updates(some, end - done):
            yield Run(UPDATE, lines=some)
        else:
            end = max(end, done + 1)
            yield from _cut_line_by_line(lines[done:end])
        done = end


def _is_one_run(block: bytes, count: int) -> bool:
    """Whether all of it is a run, which is cheaper to see than where runs end; of short lines, that
    is, since counting looks at every byte."""
    return (
        1 < count > len(block) // _SHORT
        and block.startswith(_FIRST)
        and block.startswith(_FIRST, block.rfind(b"\n", 0, -1) + 1)  # mostly an answer, if any
        and block.endswith(_LAST)
        and block.count(_SEAM) == count - 1
        and _are_updates(block, count)
    )


def _are_updates(block: bytes, count: int) -> bool:
    """Whether so many lines that look like updates are that."""
    try:
        return len(_decode_updates(block)) == count and utf8_problem(block) is None
    except UNUSUAL:
        return False


def _cut_line_by_line(lines: list[bytes]) -> Iterator[Part]:
    """The same for other methods, other orders of members, and whatever is no notification."""
    count, done = len(lines), 0
    while done < count:
        if done + 1 == count or lines[done].startswith(_WITH_ID):
            yield lines[done]
            done += 1
            continue
        found: list[Notification] = []
        with suppress(*UNUSUAL, TypeError):  # whatever is found before stays in the list
            found.extend(map(decode_notification, islice(lines, done, None)))
        for length, method, params in _same_method(found):
            some = lines[done : done + length]
            if length > 1 and utf8_problem(b"".join(some)) is None and _only_objects(params):
                yield Run(method, params)
            else:
                yield from some
            done += length
        if done < count:
            yield lines[done]
            done += 1


def _same_method(found: list[Notification]) -> Iterator[tuple[int, str, list[Payload]]]:
    """Cut into parts of one method: how many, the method, the params."""
    methods = [notification.method for notification in found]
    start, count = 0, len(found)
    while start < count:
        method = methods[start]
        same = count - start if methods.count(method) == count else 1
        while start + same < count and methods[start + same] == method:
            same += 1
        yield same, method, [each.params for each in found[start : start + same]]
        start += same


def _only_objects(params: list[Payload]) -> bool:
    firsts = [memoryview(each)[0] for each in params]
    return firsts.count(_BRACE) == len(firsts)
