"""Substitution of escaped surrogates (`\\ud83d`), so that msgspec accepts JSON text. Pure.

msgspec refuses the escape of a lone surrogate; the standard library accepts it, but creates an
object for every value: 56 bytes of memory for each byte of `[],[],…`, and half a second for each
megabyte, which blocks the event loop. So each surrogate escape is replaced by an escape of the same
length, from a block of 4096 characters that the text does not use, and replaced back in the values
that msgspec cuts out.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from conductor.jsonrpc.messages import Payload

__all__ = ["SubstitutedText", "has_surrogate", "substitute_surrogates"]

_CANDIDATE_BLOCKS: Final = "eabcf"
"""First hexadecimal digits: private-use characters first, which few texts escape. Letters only, so
that the case of the digit can be restored; none is the digit of an ASCII character."""

_surrogate: Final = rb"\\u[dD][89a-fA-F]"
_lone_surrogate: Final = "[\ud800-\udfff]"


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
