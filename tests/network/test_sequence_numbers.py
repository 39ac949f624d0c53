"""Sequence numbers, acknowledgements, retransmission."""

from __future__ import annotations

import math
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.network.sequence_numbers import (
    WINDOW,
    AckFrame,
    DuplicateFilter,
    NumberedFrame,
    ReceiveWindow,
    SendWindow,
    SequenceError,
    parse_frame,
)


class End:
    """One end of a resumable stream, numbers only; `line` is what it has written to the network."""

    def __init__(self) -> None:
        self.outgoing = SendWindow()
        self.incoming = ReceiveWindow()
        self.line: deque[str] = deque()
        self.sent = 0
        self.taken: list[bytes] = []

    def send(self) -> None:
        if self.sent < self.outgoing.last:
            self.sent += 1
            self.line.append(self.outgoing.get(self.sent).encode())

    def acknowledge(self, now: float) -> None:
        if (acknowledgement := self.incoming.acknowledgement(now)) is not None:
            self.line.append(acknowledgement.encode())

    def receive(self, frame: str) -> None:
        match parse_frame(frame):
            case NumberedFrame() as numbered:
                self.incoming.put(numbered)
            case AckFrame(number):
                self.outgoing.acknowledge(number)

    def take(self, now: float) -> None:
        if (text := self.incoming.take(now)) is not None:
            self.taken.append(text)

    def resume(self, received: int) -> None:
        self.outgoing.acknowledge(received)
        self.line.clear()
        self.sent = received


STEPS = ["put", "send", "arrive", "take", "acknowledge", "cut"]


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.booleans()), max_size=200))
def test_cuts_at_any_point_lose_duplicate_or_reorder_nothing(steps):
    """A cut loses everything that is on the network, in both directions, at that moment."""
    ends = End(), End()
    put: tuple[list[bytes], list[bytes]] = ([], [])
    now = 0.0

    def step(what: str, which: int) -> None:
        nonlocal now
        now += 0.05
        end, other = ends[which], ends[1 - which]
        match what:
            case "put":
                put[which].append(b"%d" % len(put[which]))
                assert end.outgoing.put(put[which][-1]) == len(put[which])
            case "send":
                end.send()
            case "arrive":
                if other.line:
                    end.receive(other.line.popleft())
            case "take":
                end.take(now)
            case "acknowledge":
                end.acknowledge(now)
            case "cut":
                received = end.incoming.taken, other.incoming.taken
                end.resume(received[1])
                other.resume(received[0])

    for what, which in steps:
        step(what, int(which))
    while any(end.outgoing.acknowledged < end.outgoing.last for end in ends):
        for what in ("send", "arrive", "take", "acknowledge"):
            step(what, 0)
            step(what, 1)

    assert (ends[1].taken, ends[0].taken) == put
    assert [end.outgoing.size for end in ends] == [0, 0]


def test_frames_are_read_as_they_were_written():
    frames = [NumberedFrame(1, '{"ä":" "}'.encode()), NumberedFrame(12, b""), AckFrame(0)]

    assert [parse_frame(frame.encode()) for frame in frames] == frames


@pytest.mark.parametrize(
    "frame", ["", "{}", "1", "-1 {}", "١ {}", "ack", "ack x", "ack -1", "9" * 19 + " {}", "+1 a"]
)
def test_a_frame_without_a_number_is_refused(frame):
    with pytest.raises(SequenceError, match="expected a numbered message"):
        parse_frame(frame)


def test_an_acknowledgement_of_an_unsent_or_dropped_frame_is_out_of_step():
    outgoing = SendWindow()
    outgoing.put(b"one")
    outgoing.put(b"two")
    outgoing.acknowledge(1)

    for number in (0, 3):
        with pytest.raises(SequenceError, match=f"acknowledged {number}, expected 1 to 2"):
            outgoing.acknowledge(number)


def test_a_gap_is_out_of_step():
    incoming = ReceiveWindow()
    incoming.put(NumberedFrame(1, b"a"))

    with pytest.raises(SequenceError, match="sent number 3, expected 2"):
        incoming.put(NumberedFrame(3, b"a"))


def test_a_duplicate_frame_is_dropped_delivered_or_queued():
    incoming = ReceiveWindow()
    for number in (1, 2, 1, 2):
        incoming.put(NumberedFrame(number, b"%d" % number))

    assert [incoming.take(0), incoming.take(0), incoming.take(0)] == [b"1", b"2", None]


def test_a_sender_is_full_until_enough_is_acknowledged():
    outgoing = SendWindow()
    outgoing.put(b"a" * (WINDOW - 1))
    almost = outgoing.full
    outgoing.put(b"b")
    full = outgoing.full
    outgoing.acknowledge(1)

    assert (almost, full, outgoing.full) == (False, True, False)


def test_a_peer_that_does_not_wait_for_acknowledgements_is_refused():
    incoming = ReceiveWindow()
    incoming.put(NumberedFrame(1, b"a" * WINDOW))

    with pytest.raises(SequenceError, match="not acknowledged"):
        incoming.put(NumberedFrame(2, b"b"))


@pytest.mark.parametrize(("texts", "size"), [(100, 1), (1, WINDOW // 8)])
def test_many_texts_or_bytes_are_acknowledged_at_once(texts, size):
    incoming = ReceiveWindow()
    for number in range(1, texts + 1):
        incoming.put(NumberedFrame(number, b"a" * size))
        before = incoming.acknowledgement(0)
        incoming.take(0)

    assert (before, incoming.acknowledgement(0)) == (None, AckFrame(texts))


def test_few_are_acknowledged_after_a_moment_and_once():
    incoming = ReceiveWindow()
    incoming.put(NumberedFrame(1, b"a"))
    incoming.take(10.0)

    acks = [incoming.acknowledgement(now) for now in (10.1, incoming.ack_at, 20.0)]

    assert acks == [None, AckFrame(1), None]
    assert incoming.ack_at == math.inf


def test_a_repeatable_number_is_new_once_in_any_order():
    posts = DuplicateFilter()

    assert [posts.is_new(number) for number in (2, 1, 2, 3, 1)] == [True, True, False, True, False]


def test_numbers_that_run_backwards_are_not_remembered_for_ever():
    posts = DuplicateFilter()

    assert sum(posts.is_new(number) for number in range(10_000, 0, -1)) == 1000
