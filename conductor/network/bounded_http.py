"""HTTP clients that read no more of an answer than may be kept.

The body of an answer has at most `limit` bytes, counted decompressed; a longer one raises
`BodyTooLarge`. The body of an error status is only shown, and cut after `_MAX_ERROR_BYTES` or
`_ERROR_SECONDS`. An event stream has no end: its decoder bounds each event. h11 and h2 bound the
head of an answer.

Compression is not asked for. From servers that do it nevertheless, `gzip` and `deflate` are
decompressed in steps between which other tasks run; other codings are refused.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from functools import partial
from typing import Any, Final

import attrs
import httpx2
import trio

__all__ = ["BodyTooLarge", "bounded_client"]

_MAX_ERROR_BYTES: Final = 64 * 1024
_ERROR_SECONDS: Final = 10.0
_IDENTITY: Final = "identity"
_STEP: Final = 64 * 1024
"""Bytes that are decompressed at once."""
_ZLIB_OR_GZIP: Final = 32 + zlib.MAX_WBITS


class BodyTooLarge(httpx2.TransportError):
    """The body of an answer is larger than the limit."""


def bounded_client(limit: int, **options: Any) -> httpx2.AsyncClient:
    """A client with these options of `httpx2.AsyncClient`. `limit`: bytes of a body."""
    client = httpx2.AsyncClient(**options)
    client.headers["Accept-Encoding"] = _IDENTITY
    client.event_hooks = {"response": [partial(_bound, limit)]}
    return client


async def _bound(limit: int, response: httpx2.Response) -> None:
    """Bound the body of an answer that has not been read."""
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        _content_coding(response)
        response.headers["content-type"] = "text/event-stream"  # always in UTF-8
        if response.is_success:
            return
    until = math.inf
    if not response.is_success:
        limit, until = min(limit, _MAX_ERROR_BYTES), trio.current_time() + _ERROR_SECONDS
    is_compressed = _content_coding(response, "gzip", "deflate") != _IDENTITY
    if is_compressed:
        del response.headers["content-encoding"]
    response.stream = _Body(stream, limit, until, is_compressed)


def _content_coding(response: httpx2.Response, *decoded: str) -> str:
    """The content coding of an answer, `identity` or one of `decoded`. Raises `DecodingError`."""
    coding = response.headers.get("content-encoding", "").strip().lower() or _IDENTITY
    if coding in (_IDENTITY, *decoded):
        return coding
    raise httpx2.DecodingError(f"it compresses its answer ({coding[:40]}), which was not asked for")


@attrs.define(eq=False)
class _Body(httpx2.AsyncByteStream):
    """A body, decompressed, up to a limit. One that is read until a time is cut at both."""

    _stream: httpx2.AsyncByteStream
    _limit: int
    _until: float
    _is_compressed: bool

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left, is_cut = self._limit, self._until < math.inf
        chunks = aiter(self._stream)
        decompressor = zlib.decompressobj(_ZLIB_OR_GZIP) if self._is_compressed else None
        try:
            while decompressor is None or not decompressor.eof:
                chunk = None
                with trio.move_on_at(self._until):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return
                for piece in (chunk,) if decompressor is None else _pieces(decompressor, chunk):
                    left -= len(piece)
                    if left < 0 and not is_cut:
                        raise BodyTooLarge(f"its answer has more than {self._limit} bytes")
                    yield piece[: len(piece) + min(left, 0)]
                    if left < 0:
                        return
                    await trio.lowlevel.checkpoint()
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    async def aclose(self) -> None:
        await self._stream.aclose()


def _pieces(decompressor: zlib._Decompress, chunk: bytes) -> Iterator[bytes]:
    while chunk and not decompressor.eof:
        try:
            yield decompressor.decompress(chunk, _STEP)
        except zlib.error as exc:
            raise httpx2.DecodingError(f"its answer cannot be decompressed: {exc}") from None
        chunk = decompressor.unconsumed_tail
