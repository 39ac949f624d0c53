"""A recorded agent answers as the real one did, at the pace of the client."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
import trio

from conductor.errors import ConnectionClosed, RequestError
from conductor.proxy import Proxy, on_permission, on_tool_end, on_turn_end
from conductor.testing import RecordedAgent, Recording
from conductor.tracing.conversation import message_label


def event(kind, sender, **members):
    receiver = "Client" if sender == "Agent" else "Agent"
    return {"type": kind, "ts": 0.0, "from": sender, "to": receiver, **members}


def request(id, method, params, sender="Client"):
    return event("request", sender, protocol="acp", id=id, method=method, params=params)


def notification(method, params, sender="Agent"):
    return event("notification", sender, protocol="acp", method=method, params=params)


def response(id, payload, sender="Agent", *, is_error=False):
    return event("response", sender, id=id, is_error=is_error, payload=payload)


def chunk(text):
    content = {"type": "text", "text": text}
    update = {"sessionUpdate": "agent_message_chunk", "content": content}
    return notification("session/update", {"sessionId": "s", "update": update})


OPENED = [
    request(1, "initialize", {"protocolVersion": 1}),
    response(1, {"protocolVersion": 1}),
    request(2, "session/new", {"cwd": "/project", "mcpServers": []}),
    response(2, {"sessionId": "s"}),
    chunk("at /project"),
]


@pytest.fixture
def agent(tmp_path):
    def make(*events):
        path = tmp_path / "mine.jsonl"
        path.write_text("".join(json.dumps(event) + "\n" for event in [*OPENED, *events]))
        return RecordedAgent(path)

    return make


async def open_session(client, cwd="/project"):
    await client.initialize()
    return await client.new_session(cwd)


@pytest.mark.parametrize("name", Recording.names())
async def test_a_client_that_says_the_same_gets_the_same(acp_chain, name):
    """The whole conversation, but for the order in which the client answers."""
    recording = Recording.load(name)
    async with acp_chain(RecordedAgent(name), bridged=False) as client:
        for method in ("fs/read_text_file", "fs/write_text_file"):
            client.handlers[method] = lambda params: {"content": ""}
        session = await open_session(client)
        await client.transcript.wait("session/update available_commands_update")
        for prompt in recording.prompts[:-1]:
            await client.prompt(session, prompt)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(last_turn, client, session)
            await client.attached.chain.components[0].transcript.wait("session/prompt?", count=5)
            client.cancel(session)

    from_agent = [message_label(m) for m in recording.messages if m.toward == "client"]
    assert client.transcript.labels == from_agent


async def last_turn(client, session):
    with suppress(RequestError):  # so ends a cancelled turn of qwen-code
        await client.prompt(session, "any text")


async def test_what_follows_a_response_in_the_recording_follows_it(acp_chain, agent):
    async with acp_chain(agent(), bridged=False) as client:
        await open_session(client)
        await client.transcript.wait("session/update agent_message_chunk")

    assert client.transcript.labels == [
        "answer to initialize",
        "answer to session/new",
        "session/update agent_message_chunk",
    ]


async def test_the_working_directory_is_that_of_the_session(acp_chain, agent):
    async with acp_chain(agent()) as client:
        await open_session(client, "/home/me")
        await client.transcript.wait("session/update agent_message_chunk")

    assert client.transcript.text() == "at /home/me"


async def test_a_turn_waits_for_the_client(acp_chain, agent):
    """For the answer to a request, but not before the agent did so in the recording."""
    turn = [
        request(3, "session/prompt", {"prompt": []}),
        request(4, "fs/read_text_file", {"path": "/x"}, "Agent"),
        chunk("before, "),
        response(4, {"content": "x"}, "Client"),
        chunk("after"),
        response(3, {"stopReason": "end_turn"}),
    ]
    said = []

    async def read(params):
        await client.transcript.wait(lambda heard: "before" in str(heard.params))
        said.append(client.transcript.text())
        raise RequestError(-32000, "no such file")

    async with acp_chain(agent(*turn)) as client:
        session = await open_session(client)
        client.handlers["fs/read_text_file"] = read
        await client.prompt(session, "hi")

    assert said == ["at /projectbefore, "]
    assert client.transcript.text() == "at /projectbefore, after"
    assert client.transcript.labels[3:5] == [
        "fs/read_text_file?",
        "session/update agent_message_chunk",
    ]


def prompt(id, text, session="s"):
    blocks = [{"type": "text", "text": text}]
    return request(id, "session/prompt", {"sessionId": session, "prompt": blocks})


async def test_an_equal_prompt_gets_its_turn_before_the_next_one(acp_chain, agent):
    turns = [
        *(prompt(3, "one"), response(3, {"stopReason": "one"})),
        *(prompt(4, "two"), response(4, {"stopReason": "two"})),
    ]
    async with acp_chain(agent(*turns)) as client:
        session = await open_session(client)
        reasons = [(await client.prompt(session, each))["stopReason"] for each in ("two", "three")]

    assert reasons == ["two", "one"]


async def test_turns_of_several_sessions_are_independent(acp_chain, agent):
    """That of the second session waits for the client, the first one does not wait for it."""
    turns = [
        request(3, "session/new", {"cwd": "/other", "mcpServers": []}),
        response(3, {"sessionId": "t"}),
        prompt(4, "one"),
        prompt(5, "two", "t"),
        request(6, "fs/read_text_file", {"sessionId": "t", "path": "/x"}, "Agent"),
        response(6, {"content": "x"}, "Client"),
        chunk(", one"),
        response(5, {"stopReason": "refusal"}),
        response(4, {"stopReason": "end_turn"}),
    ]
    async with acp_chain(agent(*turns)) as client:
        first = await open_session(client)
        second = await client.new_session("/other")
        client.handlers["fs/read_text_file"] = lambda params: {"content": ""}

        assert (await client.prompt(second, "any text"))["stopReason"] == "refusal"
        assert client.transcript.text() == "at /project"
        assert (await client.prompt(first, "any text"))["stopReason"] == "end_turn"
        assert client.transcript.text() == "at /project, one"


async def test_a_turn_goes_on_although_an_mcp_server_does_not_start(acp_chain, agent):
    asked = request(4, "initialize", {}, "Agent") | {"protocol": "mcp", "mcp_server": "tools"}
    turn = [
        request(3, "session/prompt", {"prompt": []}),
        asked,
        response(4, {}, "Client"),
        chunk("after"),
        response(3, {"stopReason": "end_turn"}),
    ]
    async with acp_chain(agent(*turn)) as client:
        await client.prompt(await open_session(client), "hi")

    assert client.transcript.text() == "at /projectafter"


async def test_an_error_is_played(acp_chain, agent):
    error = {"code": -32000, "message": "log in first", "data": {"x": 1}}
    turn = [request(3, "session/prompt", {"prompt": []}), response(3, error, is_error=True)]
    async with acp_chain(agent(*turn)) as client:
        session = await open_session(client)
        with pytest.raises(RequestError, match="log in first") as caught:
            await client.prompt(session, "hi")

    assert caught.value.data == {"x": 1}


async def test_a_request_beyond_the_recording_is_refused(acp_chain, agent):
    async with acp_chain(agent()) as client:
        session = await open_session(client)
        with pytest.raises(RequestError, match=r"session/prompt: the recording mine has none"):
            await client.prompt(session, "hi")
        with pytest.raises(RequestError, match=r"session/new: the recording mine has 1 of them"):
            await client.new_session("/project")


async def test_a_chain_ends_while_the_agent_waits_for_a_cancel(acp_chain, agent, virtual_clock):
    turn = [
        request(3, "session/prompt", {"prompt": []}),
        notification("session/cancel", {"sessionId": "s"}, "Client"),
        response(3, {"stopReason": "cancelled"}),
    ]

    async def prompt(client, session):
        with suppress(RequestError, ConnectionClosed):
            await client.prompt(session, "hi")

    async with trio.open_nursery() as nursery, acp_chain(agent(*turn)) as client:
        session = await open_session(client)
        nursery.start_soon(prompt, client, session)
        await client.attached.chain.components[-1].transcript.wait("session/prompt?")

    # The chain cancels the turn when the client leaves.
    assert trio.current_time() < 1


async def test_a_proxy_sees_events_of_real_agents(acp_chain):
    class Seen(Proxy):
        seen: list

        @on_tool_end
        async def tool(self, session, call):
            self.seen.append((call.kind, call.status))

        @on_permission
        async def ask(self, session, asked, forward):
            self.seen.append(asked.tool_call.kind)
            return asked.deny()

        @on_turn_end
        async def end(self, session, end):
            self.seen.append(end.stop_reason)

    proxy = Seen()
    proxy.seen = []
    async with acp_chain(proxy, RecordedAgent("opencode"), strict=True) as client:
        client.handlers["fs/write_text_file"] = lambda params: {}
        session = await open_session(client)
        for _ in range(4):
            await client.prompt(session, "the text does not matter")

    assert proxy.seen == [
        *("end_turn", ("read", "completed"), "end_turn"),
        *("edit", ("edit", "completed"), "end_turn"),
        *("execute", ("execute", "failed"), "end_turn"),
    ]
