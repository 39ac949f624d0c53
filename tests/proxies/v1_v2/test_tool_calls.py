"""What is kept and shown of an agent's tool calls and terminals."""

from __future__ import annotations

import base64

import pytest

from proxies.v1_v2.to_v1 import SessionToV1, V1Features


@pytest.fixture
def session():
    return SessionToV1(V1Features())


def item(text):
    return {"type": "content", "content": {"type": "text", "text": text}}


def chunk(call, text):
    return {"sessionUpdate": "tool_call_content_chunk", "toolCallId": call, "content": item(text)}


def call(id, **members):
    return {"sessionUpdate": "tool_call_update", "toolCallId": id, **members}


def texts(update):
    return [each["content"]["text"] for each in update["content"]]


def test_chunks_are_appended_to_the_newest_items_of_a_call(session):
    for number in range(30):
        (update,) = session.convert(chunk("c", str(number).ljust(100_000, ".")))

    shown = [int(text.rstrip(".")) for text in texts(update)]
    assert shown == list(range(30 - len(shown), 30))
    assert 9 <= len(shown) <= 11


def test_an_item_that_is_too_large_is_shown_and_not_kept(session):
    large = "x" * 2 * 2**20

    (whole,) = session.convert(call("c", content=[item(large)]))
    (appended,) = session.convert(chunk("c", large))
    (later,) = session.convert(chunk("c", "end"))

    assert texts(whole) == texts(appended) == [large]
    assert texts(later) == ["end"]


def test_content_is_kept_of_the_newest_calls_that_have_not_ended(session):
    for number in range(51):
        session.convert(chunk(f"c{number}", "one"))
    session.convert(call("c50", status="completed"))

    appended = [session.convert(chunk(id, "two"))[0] for id in ("c49", "c50", "c0")]

    assert [texts(each) for each in appended] == [["one", "two"], ["two"], ["two"]]


# -- terminals -------------------------------------------------------------------------------------


def shown(session, update):
    """The text of the terminal, if it is shown now."""
    update = {"terminalId": "t", **update}
    return [text for each in session.convert(update) for text in texts(each)]


def output(size):
    data = base64.b64encode(b"x" * size).decode()
    return {"sessionUpdate": "terminal_output_chunk", "data": data}


@pytest.fixture
def terminal(session):
    """A session with a tool call that shows a terminal."""
    session.convert(call("c", content=[{"type": "terminal", "terminalId": "t"}]))
    return session


def test_a_terminal_is_shown_with_the_first_output_and_then_once_for_each_kilobyte(terminal):
    sizes = [1, 1023, 1, 1023]
    assert [len(shown(terminal, output(size))) for size in sizes] == [1, 0, 1, 0]


def test_an_update_of_a_terminal_is_shown_at_once_and_its_output_replaces_the_earlier_one(terminal):
    shown(terminal, output(3))
    data = base64.b64encode(b"done").decode()
    update = {"sessionUpdate": "terminal_update", "command": "make", "output": {"data": data}}
    assert shown(terminal, update) == ["```console\n$ make\ndone\n```"]


def test_of_much_output_of_a_terminal_the_end_is_shown(terminal):
    (text,) = shown(terminal, output(100_000))
    assert 16_000 < len(text) < 17_000
