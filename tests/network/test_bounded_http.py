"""What is read of the answer of a hostile HTTP server, and what is kept."""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import AsyncIterator, Iterator

import httpx2
import pytest
import trio

from conductor.network.bounded_http import BodyTooLarge, bounded_client

LIMIT = 1024 * 1024
TEXT = b'{"jsonrpc":"2.0","id":1,"result":{}}'


class Served(httpx2.AsyncByteStream):
    """A body, its chunks counted; `pause`: seconds before each."""

    def __init__(self, chunks: Iterator[bytes], pause: float = 0) -> None:
        self.chunks, self.pause, self.sent, self.closed = chunks, pause, 0, False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            await trio.sleep(self.pause)
            self.sent += 1
            yield chunk

    async def aclose(self) -> None:
        self.closed = True


def client(body: Served, status: int = 200, **headers: str) -> httpx2.AsyncClient:
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    def answer(request: httpx2.Request) -> httpx2.Response:
        assert request.headers["accept-encoding"] == "identity"
        return httpx2.Response(status, headers=named, stream=body)

    return bounded_client(LIMIT, transport=httpx2.MockTransport(answer))


def endless(chunk: bytes) -> Iterator[bytes]:
    return itertools.repeat(chunk)


def bomb(wbits: int) -> Iterator[bytes]:
    """Each chunk of some kB decompresses to 16 MiB."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, wbits)
    while True:
        yield compressor.compress(bytes(16 * LIMIT)) + compressor.flush(zlib.Z_SYNC_FLUSH)


async def test_a_body_without_end_is_read_up_to_the_limit():
    body = Served(endless(bytes(LIMIT // 4)))
    async with client(body) as http:
        with pytest.raises(BodyTooLarge, match="more than 1048576 bytes"):
            await http.get("http://peer/")

    assert body.sent == 5
    assert body.closed


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_the_limit_counts_decompressed_bytes_and_other_tasks_run_meanwhile(coding):
    body = Served(bomb(31 if coding == "gzip" else 15))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with client(body, content_encoding=coding) as http, trio.open_nursery() as nursery:
        nursery.start_soon(other)
        with pytest.raises(BodyTooLarge):
            await http.get("http://peer/")
        nursery.cancel_scope.cancel()

    assert body.sent == 1
    assert turns > 10


async def test_a_compressed_answer_is_read_to_the_end_of_its_data():
    body = Served(itertools.chain([gzip.compress(TEXT)], endless(bytes(LIMIT))))
    async with client(body, content_encoding="gzip") as http:
        answer = await http.get("http://peer/")

    assert answer.content == TEXT
    assert body.sent <= 2


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "x-gzip"])
async def test_codings_that_are_not_decompressed_are_refused(coding):
    body = Served(endless(bytes(LIMIT)))
    async with client(body, content_encoding=coding) as http:
        with pytest.raises(httpx2.DecodingError, match="compresses its answer"):
            await http.get("http://peer/")

    assert body.sent == 0


@pytest.mark.parametrize("type", ["application/json", "text/event-stream"])
async def test_the_body_of_an_error_is_cut(type):
    body = Served(endless(b"no " * 10_000))
    async with client(body, 503, content_type=type) as http:
        answer = await http.get("http://peer/")

    assert (answer.status_code, len(answer.content)) == (503, 65536)
    assert body.closed


async def test_the_body_of_an_error_that_comes_slowly_is_cut(autojump_clock):
    body = Served(endless(b"no"), pause=3)
    async with client(body, 500) as http:
        answer = await http.get("http://peer/")

    assert answer.text == "nonono"


async def test_an_event_stream_has_no_end():
    body = Served(iter([b"data: x\n\n" * (LIMIT // 4)] * 3))
    async with client(body, content_type="text/event-stream; charset=punycode") as http:
        answer = await http.get("http://peer/")

    assert len(answer.content) > 3 * LIMIT
    assert answer.headers["content-type"] == "text/event-stream"
