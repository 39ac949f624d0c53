"""JSON text that msgspec does not take as it is: its bytes are checked for UTF-8, and escaped
surrogates (`\\ud83d`) are substituted. Pure.

msgspec does not check the inside of raw values. Proxies pass most messages on unchanged, so a large
line of a proxy often ends like one that was read shortly before, from the agent or another proxy. A
comparison shows that in a fifth of the time of a check (0.07 and 0.36 ms for 1 MiB), and only the
bytes before the equal part are checked then: an update of 1 MiB costs an eighth less with three
proxies. Nothing is trusted: what lies between two ends of characters is as valid as its equal.

msgspec refuses the escape of a lone surrogate; the standard library accepts it, but creates an
object for every value: 56 bytes of memory for each byte of `[],[],…`, and half a second for each
megabyte, which blocks the event loop. So each surrogate escape is replaced by an escape of the same
length, from a block of 4096 characters that the text does not use, and replaced back in the values
that msgspec cuts out.
"""

from __future__ import annotations

import re
from codecs import utf_8_decode
from collections import deque
from typing import Final

import msgspec

from conductor.jsonrpc.messages import Payload

__all__ = [
    "SubstitutedText",
    "has_surrogate",
    "substitute_surrogates",
    "utf8_error",
    "utf8_error_in_copy",
]

_SLICE: Final = 32768
_LARGE: Final = 65536
"""Size of a line from which on it is compared and kept, in bytes."""
_KEPT_BYTES: Final = 8 * 1024 * 1024
"""Upper bound of the lines that are kept in a process: what three proxies with messages of 1 MiB
have under way."""
_BEFORE_PAYLOAD: Final = 512
"""Bytes at the beginning of a line that differ from hop to hop, with the envelope, at most."""
_LAST_BYTES: Final = 16
"""Bytes at the end of a line among which are the closing braces of message and envelope."""

_CANDIDATE_BLOCKS: Final = "eabcf"
"""First hexadecimal digits: private-use characters first, which few texts escape. Letters only, so
that the case of the digit can be restored; none is the digit of an ASCII character."""

_surrogate: Final = rb"\\u[dD][89a-fA-F]"
_lone_surrogate: Final = "[\ud800-\udfff]"

_kept: Final[deque[bytes]] = deque()
"""Large lines, oldest first. All are UTF-8."""


def utf8_error(line: bytes) -> str | None:
    """The first encoding error and its position; `None` if the line is UTF-8."""
    if line.isascii():
        return None
    at = 0
    try:
        if len(line) <= _SLICE:
            line.decode()
        else:
            # Decoding a megabyte allocates as much memory again, each time: slices take a third.
            view = memoryview(line)
            while at < len(line):
                at += utf_8_decode(view[at : at + _SLICE], "strict", at + _SLICE >= len(line))[1]
    except UnicodeDecodeError as exc:
        at += exc.start
        return f"not UTF-8: byte 0x{line[at]:02x} at {at} ({exc.reason})"
    return None


def utf8_error_in_copy(line: bytes) -> str | None:
    """The same for a line that may be a copy: compares it with the large lines that this function
    got last."""
    if len(line) < _LARGE or line.isascii():
        return utf8_error(line)
    for index, known in enumerate(_kept):
        start = _start_of_equal_part(line, known)
        if start and utf8_error(line[:start]) is None:
            del _kept[index]
            _keep(line)
            return None
    error = utf8_error(line)
    if error is None:
        _keep(line)
    return error


def _start_of_equal_part(line: bytes, known: bytes) -> int:
    """The index of a character from which on a line is equal to a known one, but for the braces and
    the newline at their ends; 0 if they differ."""
    line_end, known_end = _end_of_payload(line), _end_of_payload(known)
    if line[line_end - _LAST_BYTES : line_end] != known[known_end - _LAST_BYTES : known_end]:
        return 0
    size = min(line_end, known_end) - _BEFORE_PAYLOAD
    while known[known_end - size] & 0xC0 == 0x80:  # inside of a character
        size -= 1
    equal_part = memoryview(known)[known_end - size : known_end]
    return line_end - size if line.startswith(equal_part, line_end - size) else 0


def _end_of_payload(line: bytes) -> int:
    last_bytes = line[-_LAST_BYTES:]
    return len(line) - len(last_bytes) + len(last_bytes.rstrip(b"}\n"))


def _keep(line: bytes) -> None:
    _kept.append(line)
    while sum(map(len, _kept)) > _KEPT_BYTES:
        _kept.popleft()


class SubstitutedText(msgspec.Struct, frozen=True):
    """`text` is the JSON text with surrogate escapes replaced by escapes of `block`."""

    text: bytes
    block: str | None = None
    """`None` if there were no surrogate escapes."""

    def raw(self, value: Payload) -> bytes:
        """A part of `text` with the original escapes."""
        if self.block is None:
            return bytes(value)
        lower, upper = _escapes(self.block)
        return bytes(value).replace(lower, b"\\ud").replace(upper, b"\\uD")

    def string(self, value: str) -> str:
        """A string decoded from `text`, in original characters; surrogate pairs are joined."""
        if self.block is None or value.isascii():
            return value
        first = int(self.block, 16) << 12
        units = [
            chr(ord(each) - first + 0xD000) if ord(each) >> 12 == first >> 12 else each
            for each in value
        ]
        both = "".join(units).encode("utf-16-le", "surrogatepass")
        return both.decode("utf-16-le", "surrogatepass")

    def encodable(self, value: str) -> str | None:
        """Like `string`; `None` if it has a lone surrogate, which UTF-8 cannot encode."""
        found = self.string(value)
        return None if re.search(_lone_surrogate, found) else found


def has_surrogate(text: Payload) -> bool:
    """Whether a JSON text has escaped surrogates."""
    return re.search(_surrogate, text) is not None


def substitute_surrogates(text: bytes) -> SubstitutedText | None:
    """The text without escaped surrogates; `None` if it uses all candidate blocks."""
    if not has_surrogate(text):
        return SubstitutedText(text)
    for block in _CANDIDATE_BLOCKS:
        lower, upper = _escapes(block)
        character = bytes([0xE0 | int(block, 16)])  # first UTF-8 byte of the block's characters
        if lower not in text and upper not in text and character not in text:
            return SubstitutedText(text.replace(b"\\ud", lower).replace(b"\\uD", upper), block)
    return None


def _escapes(block: str) -> tuple[bytes, bytes]:
    return b"\\u" + block.encode(), b"\\u" + block.upper().encode()
