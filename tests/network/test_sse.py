"""Server-sent events, by the rules of WHATWG HTML."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.network.sse import EventDecoder, EventTooLarge, ServerSentEvent, encode_event


def read(stream: bytes, *cuts: int) -> list[ServerSentEvent]:
    reader = EventDecoder(1000)
    points = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    pieces = [stream[a:b] for a, b in pairwise(points)]
    return [event for piece in pieces for event in reader.feed(piece)]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: {}\n\n", [ServerSentEvent(b"{}")]),
        (b"data:{}\r\n\r\n", [ServerSentEvent(b"{}")]),
        (b"data: {\rdata: }\r\r", [ServerSentEvent(b"{\n}")]),
        (b": still here\n\n", []),
        (b"retry: soon\n\ndata: a\n\n", [ServerSentEvent(b"a")]),
        (
            b"event: message\nid: 7\ndata: a\n\ndata: b\n\n",
            [ServerSentEvent(b"a", "7"), ServerSentEvent(b"b", "7")],
        ),
        (b"\xef\xbb\xbfdata: a\n\n", [ServerSentEvent(b"a")]),
        (b"data\n\n", [ServerSentEvent(b"")]),
        (b"data: not complete\n", []),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [ServerSentEvent(b"a"), ServerSentEvent(b"b")]),
        (b"event: other\ndata: a\n\n", [ServerSentEvent(b"a", None, "other")]),
    ],
)
@given(cuts=st.lists(st.integers(0, 100), max_size=30))
def test_a_stream_is_read_however_it_was_split(stream, events, cuts):
    assert read(stream, *cuts) == events


def test_an_event_over_the_limit_is_refused_and_one_that_is_long_in_comments_is_not():
    reader = EventDecoder(100)
    for _ in range(100):
        reader.feed(b": a comment\n")

    with pytest.raises(EventTooLarge):
        reader.feed(b"data: " + b"x" * 100)


@given(st.binary().filter(lambda line: not set(line) & set(b"\r\n")), st.none() | st.integers(0))
def test_an_event_that_is_written_can_be_read(line, number):
    reader = EventDecoder(10_000)

    id = None if number is None else str(number)
    assert reader.feed(encode_event(line, number)) == [ServerSentEvent(line, id)]
