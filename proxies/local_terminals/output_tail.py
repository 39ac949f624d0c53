"""The end of a command's output as text of at most so many bytes. Pure."""

from __future__ import annotations

import attrs

__all__ = ["OutputTail"]


@attrs.define(eq=False)
class OutputTail:
    """The last bytes of an output."""

    limit: int
    """Bytes of the text in UTF-8."""
    is_cut: bool = False
    """Whether earlier output is gone."""
    _data: bytearray = attrs.field(factory=bytearray, init=False)

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return len(self._data)

    def add(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > self.limit:
            self.is_cut = True
        if len(self._data) > 2 * self.limit + 4096:  # not for each byte: that moves all others
            del self._data[: len(self._data) - self.limit - 4]

    def text(self, *, is_ended: bool, limit: int | None = None) -> str:
        """The end of the output, cut before a whole character. An incomplete character at the end
        is left out while more may follow. Other bytes than UTF-8 are replaced."""
        limit = self.limit if limit is None else min(limit, self.limit)
        data = bytes(self._data)
        if not is_ended:
            data = data[: _complete(data)]
        if len(data) > limit:
            data = _cut(data, limit)
        text = data.decode(errors="replace")
        if len(text) * 3 > limit and len(encoded := text.encode()) > limit:
            self.is_cut = True  # a replaced byte takes three
            text = _cut(encoded, limit).decode()
        return text


def _cut(data: bytes, limit: int) -> bytes:
    """At most `limit` bytes at the end, without the rest of a character at their beginning."""
    start = len(data) - limit
    for _ in range(3):
        if start < len(data) and data[start] & 0xC0 == 0x80:
            start += 1
    return data[start:]


def _complete(data: bytes) -> int:
    """The length without an incomplete character at the end."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return len(data) - back if needed > back else len(data)
    return len(data)
