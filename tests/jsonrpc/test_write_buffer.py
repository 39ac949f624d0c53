"""Buffered bytes are written in order, each once."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from conductor.jsonrpc.write_buffer import WriteBuffer


class Taker:
    """Accepts the given number of bytes per call, then none."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = list(sizes)
        self.taken = b""
        self.calls = 0

    def __call__(self, pieces):
        self.calls += 1
        data = b"".join(pieces)[: self.sizes.pop(0) if self.sizes else 0]
        self.taken += data
        return len(data)


def test_messages_are_joined_and_written_at_the_next_flush():
    write_buffer, taker = WriteBuffer(), Taker(1000)
    write_buffer.unflushed += (b"a", b"b\n")
    write_buffer.unflushed += (b"c\n",)
    assert write_buffer
    assert taker.taken == b""

    assert write_buffer.flush(taker)

    assert (taker.taken, taker.calls, write_buffer.size, bool(write_buffer)) == (
        b"ab\nc\n",
        1,
        0,
        False,
    )


def test_unwritten_bytes_stay_in_order():
    write_buffer, taker = WriteBuffer(), Taker(3)
    write_buffer.unflushed += (b"abcdef",)

    assert not write_buffer.flush(taker)
    assert write_buffer.size == 3

    write_buffer.unflushed += (b"gh",)
    taker.sizes = [1, 100, 100]
    assert write_buffer.flush(taker)
    assert taker.taken == b"abcdefgh"


def test_large_payloads_are_not_copied():
    write_buffer = WriteBuffer()
    payload = b"x" * 100_000
    seen = []
    write_buffer.unflushed += (b"head", payload, b"}\n")

    write_buffer.flush(lambda pieces: seen.extend(pieces) or 0)

    assert any(view.obj is payload for view in seen)


def test_a_long_backlog_is_written_in_bounded_calls():
    write_buffer, offered = WriteBuffer(), []
    for _ in range(5000):
        write_buffer.unflushed += (b"x",)
        write_buffer.flush(lambda pieces: 0)

    def take(pieces):
        offered.append(len(pieces))
        return len(pieces)

    assert write_buffer.flush(take)
    assert max(offered) <= 60


def test_a_long_backlog_costs_no_more_per_message_than_a_short_one(monkeypatch):
    write_buffer = WriteBuffer()
    monkeypatch.setattr(write_buffer, "_backlog", _Counted(memoryview(b"x") for _ in range(10_000)))
    write_buffer.size = 10_000

    write_buffer.flush(lambda pieces: 0)

    assert write_buffer._backlog.steps <= 61


class _Counted(deque):
    """A deque that counts accessed items."""

    steps = 0

    def __iter__(self):
        for item in super().__iter__():
            self.steps += 1
            yield item


@given(
    st.lists(
        st.tuples(
            st.lists(st.binary(min_size=1, max_size=9000), min_size=1, max_size=70),
            st.integers(0, 9000),
        ),
        max_size=8,
    )
)
def test_every_byte_is_written_once_and_in_order(steps):
    write_buffer, taker, put = WriteBuffer(), Taker(), b""
    for pieces, takes in steps:
        put += b"".join(pieces)
        write_buffer.unflushed += tuple(pieces)
        taker.sizes = [takes]
        done = write_buffer.flush(taker)
        assert put == taker.taken + b"".join(write_buffer._backlog)
        assert write_buffer.size == len(put) - len(taker.taken)
        assert done == (write_buffer.size == 0)
    taker.sizes = [10**9] * 1000

    assert write_buffer.flush(taker)
    assert taker.taken == put
