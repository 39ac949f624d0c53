"""Any split of the bytes gives the same lines."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.jsonrpc.line_framing import BlockSplitter, LineSplitter, OverlongLine


def split(chunks, limit=1000):
    splitter = LineSplitter(limit)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    last = splitter.end()
    return lines if last is None else [*lines, last]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b", b"\n", b"c\n"], [b"ab", b"c"]),
        ([b"a\r\n\r\n\n"], [b"a\r", b"\r", b""]),
        ([b"a\nlast"], [b"a", b"last"]),
        ([b"\0\n"], [b"\0"]),
        ([], []),
        ([b"a\n", b""], [b"a"]),
    ],
)
def test_lines_end_at_newlines_and_at_the_end(chunks, expected):
    assert split(chunks) == expected


def test_a_line_over_the_limit_is_dropped_as_it_arrives():
    splitter = LineSplitter(10_000)
    for _ in range(100):
        assert splitter.feed(b"x" * 5000) == []
        assert sum(map(len, splitter._blocks._pieces)) <= 10_000

    lines = splitter.feed(b"tail\nnext\n")

    assert lines == [OverlongLine(b"x" * 4096, b"x" * 4092 + b"tail", 500_004), b"next"]


@st.composite
def _split_streams(draw):
    parts = st.sampled_from([b"\n", b"a", b"bc", b"\r\n", b"0123456789", b"\n\n", b"x" * 5000])
    data = b"".join(draw(st.lists(parts, max_size=30)))
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=20)))
    edges = [0, *cuts, len(data)]
    return data, [data[start:end] for start, end in pairwise(edges)]


@given(_split_streams(), st.sampled_from([1, 5, 11, 4096, 6000, 100_000]))
def test_any_split_of_the_bytes_gives_the_same_lines(stream, limit):
    data, chunks = stream

    whole = split([data], limit)

    assert split(chunks, limit) == whole
    assert split([data[i : i + 1] for i in range(len(data))][:3000], limit) == split(
        [data[:3000]], limit
    )
    expected = data.split(b"\n")
    if not expected[-1]:
        expected.pop()
    shown = [line if isinstance(line, bytes) else line.size for line in whole]
    assert shown == [line if len(line) <= limit else len(line) for line in expected]


def test_a_long_line_is_kept_in_one_piece():
    line = bytes(range(11, 256)) * 50_000  # 12 MB
    chunks = [line[start : start + 65536] for start in range(0, len(line), 65536)]
    splitter = BlockSplitter(10**9)

    before = [splitter.feed(chunk) for chunk in chunks]
    pieces = len(splitter._pieces)
    blocks = splitter.feed(b"end\nnext\nrest")

    assert before == [[]] * len(chunks)
    assert pieces == 1
    assert blocks == [line + b"end\nnext\n"]
    assert splitter.end() == b"rest"


@pytest.mark.parametrize("chunk", [65536, 1_000_000])
def test_a_line_over_the_limit_takes_no_more_memory_than_the_limit(chunk):
    limit = 32_000_000
    splitter = BlockSplitter(limit)
    piece = b"x" * chunk
    tracemalloc.start()
    try:
        for _ in range(0, limit + 2 * chunk, chunk):
            splitter.feed(piece + b"")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1.3 * limit
    (line,) = splitter.feed(b"\n")
    assert isinstance(line, OverlongLine)


def test_a_line_that_arrives_byte_by_byte_takes_little_more_memory_than_its_size():
    splitter = BlockSplitter(1_000_000)
    tracemalloc.start()
    try:
        for number in range(60_000):
            splitter.feed(b"%d" % (number % 10))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held < 150_000
