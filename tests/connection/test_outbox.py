"""What waits for a peer is written in order, each byte once."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from conductor.connection.outbox import Outbox


class Taker:
    """Takes as many bytes at a time as it is told, then none."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = list(sizes)
        self.taken = b""
        self.calls = 0

    def __call__(self, pieces):
        self.calls += 1
        data = b"".join(pieces)[: self.sizes.pop(0) if self.sizes else 0]
        self.taken += data
        return len(data)


def test_nothing_is_written_before_it_is_flushed_and_then_at_once():
    outbox, taker = Outbox(), Taker(1000)
    outbox.fresh += (b"a", b"b\n")
    outbox.fresh += (b"c\n",)
    assert outbox
    assert taker.taken == b""

    assert outbox.flush(taker)

    assert (taker.taken, taker.calls, outbox.size, bool(outbox)) == (b"ab\nc\n", 1, 0, False)


def test_what_the_peer_does_not_take_stays_in_line():
    outbox, taker = Outbox(), Taker(3)
    outbox.fresh += (b"abcdef",)

    assert not outbox.flush(taker)
    assert outbox.size == 3

    outbox.fresh += (b"gh",)
    taker.sizes = [1, 100, 100]
    assert outbox.flush(taker)
    assert taker.taken == b"abcdefgh"


def test_large_payloads_are_not_copied():
    outbox = Outbox()
    payload = b"x" * 100_000
    seen = []
    outbox.fresh += (b"head", payload, b"}\n")

    outbox.flush(lambda pieces: seen.extend(pieces) or 0)

    assert any(view.obj is payload for view in seen)


def test_clearing_forgets_everything():
    outbox = Outbox()
    outbox.fresh += (b"abc",)
    outbox.flush(Taker(1))
    outbox.fresh += (b"def",)

    outbox.clear()

    assert (outbox.size, bool(outbox), outbox.flush(Taker())) == (0, False, True)


def test_a_long_backlog_is_not_handed_over_whole():
    outbox, offered = Outbox(), []
    for _ in range(5000):
        outbox.fresh += (b"x",)
        outbox.flush(lambda pieces: 0)

    def take(pieces):
        offered.append(len(pieces))
        return len(pieces)

    assert outbox.flush(take)
    assert max(offered) <= 60


def test_a_long_backlog_costs_no_more_per_message_than_a_short_one(monkeypatch):
    outbox = Outbox()
    monkeypatch.setattr(outbox, "_backlog", _Counted(memoryview(b"x") for _ in range(10_000)))
    outbox.size = 10_000

    outbox.flush(lambda pieces: 0)

    assert outbox._backlog.steps <= 61


class _Counted(deque):
    """A deque that counts how much of it is looked at."""

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
    outbox, taker, put = Outbox(), Taker(), b""
    for pieces, takes in steps:
        put += b"".join(pieces)
        outbox.fresh += tuple(pieces)
        taker.sizes = [takes]
        done = outbox.flush(taker)
        assert put == taker.taken + b"".join(outbox._backlog)
        assert outbox.size == len(put) - len(taker.taken)
        assert done == (outbox.size == 0)
    taker.sizes = [10**9] * 1000

    assert outbox.flush(taker)
    assert taker.taken == put
