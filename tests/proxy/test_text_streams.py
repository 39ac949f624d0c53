from __future__ import annotations

import base64

import pytest

from conductor.proxy.text_streams import TextStreams, chunk_text, with_chunk_text
from conductor.testing.updates import chunk

TOOL = {"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "Look"}
TITLE = {"sessionUpdate": "session_info_update", "title": "x"}


class Lines:
    """Shows whole lines, in capitals."""

    def __init__(self):
        self.rest = ""

    def feed(self, text):
        shown, end, self.rest = (self.rest + text).rpartition("\n")
        return (shown + end).upper()

    def end(self):
        return self.rest.upper()


class AsyncLines(Lines):
    async def feed(self, text):
        return super().feed(text)

    async def end(self):
        return super().end()


async def rewritten(streams, *updates):
    """What is sent in place of each of these updates."""
    shown = []
    for update in updates:
        sent = await streams.rewrite({"sessionId": "s", "update": update})
        shown.append([each["update"] for each in sent])
    return shown


@pytest.mark.parametrize("new_filter", [Lines, AsyncLines])
async def test_what_a_filter_holds_back_is_sent_when_the_text_ends(new_filter):
    streams = TextStreams(new_filter)
    shown = await rewritten(streams, chunk("a\nb"), chunk("c"), chunk("\nd"), TOOL, chunk("e"))

    assert shown == [[chunk("A\n")], [], [chunk("BC\n")], [chunk("D"), TOOL], []]
    assert streams.is_open
    assert [each["update"] for each in await streams.end()] == [chunk("E")]
    assert not streams.is_open


async def test_an_update_of_session_state_ends_no_text():
    streams = TextStreams(Lines)

    assert await rewritten(streams, chunk("a"), TITLE, chunk("\n")) == [[], [TITLE], [chunk("A\n")]]


async def test_texts_with_ids_may_interleave_and_those_without_end_each_other():
    streams = TextStreams(Lines)
    one, two = chunk("1", messageId="m1"), chunk("2", messageId=[2])
    thought = chunk("t", "agent_thought_chunk")
    shown = await rewritten(streams, one, two, chunk("a"), thought, one)

    assert shown == [[], [], [], [chunk("A")], [chunk("T", "agent_thought_chunk")]]
    ends = [each["update"] for each in await streams.end()]
    assert ends == [{**one, "content": {"type": "text", "text": "11"}}, two]


async def test_texts_of_other_kinds_pass_and_end_those_that_are_filtered():
    streams = TextStreams(Lines, ["user_message_chunk"])
    user, agent = chunk("u", "user_message_chunk"), chunk("a")
    shown = await rewritten(streams, user, agent)

    assert shown == [[], [chunk("U", "user_message_chunk"), agent]]


async def test_a_chunk_without_a_text_ends_the_text_before():
    image = {"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": "x"}}

    assert await rewritten(TextStreams(Lines), chunk("a"), image) == [[], [chunk("A"), image]]


async def test_an_update_that_is_not_changed_is_sent_as_it_is():
    params = {"sessionId": "s", "update": chunk("A\n")}
    (sent,) = await TextStreams(Lines).rewrite(params)

    assert sent is params


async def test_open_texts_are_bounded(monkeypatch):
    monkeypatch.setattr("conductor.proxy.text_streams._MAX_OPEN", 2)
    chunks = [chunk(str(number), messageId=str(number)) for number in range(3)]

    assert await rewritten(TextStreams(Lines), *chunks) == [[], [], [chunks[0]]]


def test_terminal_output_is_read_and_written_as_bytes():
    def output(data):
        encoded = base64.b64encode(data).decode()
        return {"sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": encoded}

    params = {"sessionId": "s", "update": output(b"\xff")}
    assert chunk_text(params["update"]) == "\xff"
    assert with_chunk_text(params, "a\xff")["update"] == output(b"a\xff")
    assert chunk_text({**params["update"], "data": "é"}) is None
