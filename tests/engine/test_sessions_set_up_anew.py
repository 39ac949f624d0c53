"""Sessions without a prompt, of an agent that cannot take them up after a crash (virtual clock).

The client calls the session `s1`, the agent's next process `a1`.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest
from support.played_chain import cancel_turn, played_chain, prompt, said, told

BOTH = pytest.mark.parametrize("version", [1, 2])
RESUMES = {"sessionCapabilities": {"resume": {}}}
LOADS = {"loadSession": True}
RESTARTED = "[acp-conductor] agent failed, was restarted"
TEXT = 'a "sessionId":"s1", and "sessionId":"a1"'


@asynccontextmanager
async def renamed_session(directory, version=1):
    """A chain with an agent that has crashed, and has set up the session `s1` as `a1`."""
    async with played_chain(directory, version=version) as chain:
        await chain.open("s1")
        await crash(chain, "a1")
        await chain.client.receive_all()
        yield chain


async def crash(chain, *new_ids, able=None):
    """Let the agent crash; its next process gives these ids to the sessions that are set up."""
    await chain["agent"].end()
    await chain.restart_agent(able=able)
    for id in new_ids:
        if chain.version == 2:
            await chain.refuse("session/resume", -32002, "unknown session")
        await chain.serve("session/new", {"sessionId": id})


@BOTH
@pytest.mark.parametrize("able", [{}, LOADS])
async def test_it_goes_on_under_its_id_with_its_settings(tmp_path, version, able, autojump_clock):
    set_option = "session/set_config_option"
    params = {"sessionId": "s1", "configId": "effort", "value": "low"}
    async with played_chain(tmp_path, version=version) as chain:
        await chain.open("s1", able=able)
        chain.client.send({"id": "set", "method": set_option, "params": params})
        await chain.serve(set_option)
        await chain.client.receive()

        await chain["agent"].end()
        await chain.restart_agent(able=able)
        if able or version == 2:
            method = "session/load" if version == 1 else "session/resume"
            await chain.refuse(method, -32002, "unknown session")
        request = await chain.expect("session/new")
        chain.agent.send(said("before its id is known", "a1"))
        chain.agent.answer(request, {"sessionId": "a1"})
        chain.agent.send(said("ready", "a1"))

        assert request["params"] == {"cwd": "/s1", "mcpServers": []}
        assert await chain.serve(set_option) == {**params, "sessionId": "a1"}
        ready, notice = await chain.client.receive_all()
        assert ready == said("ready", "s1")
        assert told(notice) == ("s1", RESTARTED)
        chain.client.send(prompt(1, text=TEXT))
        assert (await chain.serve("session/prompt")) == prompt(1, "a1", TEXT)["params"]
        assert (await chain.client.receive())["id"] == 1


@BOTH
async def test_each_side_reads_its_own_id_in_all_messages(tmp_path, version, autojump_clock):
    async with renamed_session(tmp_path, version) as chain:
        meta = {"sessionId": "a1", "text": TEXT}
        asks = {"sessionId": "a1", "toolCall": {"title": "sessionId"}, "options": []}
        chain.agent.send({"id": 7, "method": "session/request_permission", "params": asks})
        chain.agent.send({"method": "_vendor/note", "params": {"update": {}, "_meta": meta}})
        chain.agent.send(said(TEXT, "a1"), said("two", "a1"), said("other", "b1"))
        question, *rest = await chain.client.receive_all()
        assert question["params"] == {**asks, "sessionId": "s1"}
        assert rest == [
            {
                "method": "_vendor/note",
                "params": {"update": {}, "_meta": {**meta, "sessionId": "s1"}},
            },
            said(TEXT, "s1"),
            said("two", "s1"),
            said("other", "b1"),
        ]
        chain.client.answer(question, {"outcome": {"outcome": "cancelled"}})
        assert (await chain.agent.receive())["id"] == 7

        chain.client.send(cancel_turn("s1"), cancel_turn("b1"))
        assert await chain.agent.receive_all() == [cancel_turn("a1"), cancel_turn("b1")]
        notes = [{"method": "_vendor/note", "params": {"n": n, "sessionId": "s1"}} for n in (1, 2)]
        chain.client.send(*notes)
        renamed = [{**each, "params": {**each["params"], "sessionId": "a1"}} for each in notes]
        assert await chain.agent.receive_all() == renamed
        chain.client.send({"id": 1, "method": "session/list", "params": {}})
        listed = [{"sessionId": "b1"}, {"cwd": "/", "sessionId": "a1"}]
        await chain.serve("session/list", {"sessions": listed})
        listed[1]["sessionId"] = "s1"
        assert await chain.client.receive() == {"id": 1, "result": {"sessions": listed}}
        chain.client.send({"id": 2, "method": "session/close", "params": {"sessionId": "s1"}})
        request = await chain.expect("session/close")
        assert request["params"] == {"sessionId": "a1"}
        chain.agent.refuse(request, -32002, "busy", {"sessionId": "a1"})
        error = {"code": -32002, "message": "busy", "data": {"sessionId": "s1"}}
        assert await chain.client.receive() == {"id": 2, "error": error}


@BOTH
async def test_it_survives_the_next_crash_too_and_is_lost_once_it_was_prompted(
    tmp_path, version, autojump_clock
):
    async with renamed_session(tmp_path, version) as chain:
        await crash(chain, "a2")
        assert told(await chain.client.receive())[0] == "s1"
        chain.client.send(prompt(1))
        assert (await chain.serve("session/prompt"))["sessionId"] == "a2"
        await chain.client.receive()

        await chain["agent"].end()
        await chain.restart_agent()
        if version == 2:
            request = await chain.expect("session/resume")
            assert request["params"]["sessionId"] == "a2"
            chain.agent.refuse(request, -32002, "unknown session")

        assert await chain.agent.receive_all() == []
        session, text = told((await chain.client.receive_all())[-1])
        assert session == "s1"
        assert "has lost this session" in text


async def test_its_conversation_is_loaded_by_the_agents_id(tmp_path, autojump_clock):
    async with played_chain(tmp_path) as chain:
        await chain.open("s1", able=LOADS)
        await chain["agent"].end()
        await chain.restart_agent(able=LOADS)
        await chain.refuse("session/load", -32002, "unknown session")
        await chain.serve("session/new", {"sessionId": "a1"})
        await chain.client.receive()
        chain.client.send(prompt(1))
        await chain.serve("session/prompt")
        await chain.client.receive()

        await chain["agent"].end()
        await chain.restart_agent(able=LOADS)
        request = await chain.expect("session/load")
        assert request["params"]["sessionId"] == "a1"
        chain.agent.send(said("history", "a1"))
        chain.agent.answer(request)

        assert [told(each) for each in await chain.client.receive_all()] == [("s1", RESTARTED)]


async def test_no_id_stands_for_two_sessions_of_an_agent_that_counts_them(tmp_path, autojump_clock):
    """The lost `s1` has had a prompt; its id is given to `s2`, and then that of `s2` to a new one,
    which the client gets as `s1`."""
    async with played_chain(tmp_path) as chain:
        await chain.open("s2", "s1")
        await chain.whole_turn(0)
        await crash(chain, "s1")
        kept, lost = (told(each) for each in await chain.client.receive_all())
        assert (lost[0], kept) == ("s1", ("s2", RESTARTED))
        assert "has lost this session" in lost[1]

        chain.client.send({"id": 1, "method": "session/new", "params": {"cwd": "/"}})
        await chain.serve("session/new", {"sessionId": "s2"})
        assert await chain.client.receive() == {"id": 1, "result": {"sessionId": "s1"}}

        for client_id, agent_id in (("s1", "s2"), ("s2", "s1")):
            chain.client.send(prompt(2, client_id))
            request = await chain.expect("session/prompt")
            assert request["params"]["sessionId"] == agent_id
            chain.agent.send(said("hello", agent_id))
            assert await chain.client.receive() == said("hello", client_id)


async def test_an_agent_that_gives_the_same_id_again_gets_every_message_as_it_is(
    tmp_path, autojump_clock
):
    async with played_chain(tmp_path) as chain:
        await chain.open("s1")
        await crash(chain, "s1")
        assert told(await chain.client.receive()) == ("s1", RESTARTED)

        line = b'{"jsonrpc":"2.0","method":"session/update", "params":{"sessionId":"s\\u0031"}}\n'
        chain.agent.send_bytes(line * 2)

        assert await chain.client.receive_line() == line.rstrip()


async def test_an_agent_that_sets_one_up_has_not_lost_its_login(tmp_path, autojump_clock):
    """gemini refuses to load an unknown session with "Authentication required"."""
    async with played_chain(tmp_path) as chain:
        await chain.open("s1", "s2", able=LOADS)
        await chain.whole_turn(0)
        await chain["agent"].end()
        await chain.restart_agent(able=LOADS)
        for _ in range(2):
            await chain.refuse("session/load", -32000, "Authentication required")
        await chain.serve("session/new", {"sessionId": "a2"})
        await chain.client.receive_all()

        chain.client.send(prompt(1, "s1"))

        error = (await chain.client.receive())["error"]
        assert (error["code"], "start a new one, or load it" in error["message"]) == (-32603, True)


ANSWERS = [
    {"error": {"code": -32603, "message": "no"}},
    {"result": {}},
    {"result": None},
    {"result": {"sessionId": "s1"}},  # the id of another session, which it has resumed
]


@pytest.mark.parametrize("answer", ANSWERS)
async def test_it_is_lost_if_the_agent_gives_it_no_id_of_its_own(tmp_path, answer, autojump_clock):
    async with played_chain(tmp_path) as chain:
        await chain.open("s1", "s2", able=RESUMES)
        await chain.whole_turn(0)
        await crash(chain, able=RESUMES)
        await chain.serve("session/resume")
        await chain.refuse("session/resume", -32002, "unknown session")
        request = await chain.expect("session/new")
        assert request["params"]["cwd"] == "/s2"

        chain.agent.send({"id": request["id"], **answer})

        texts = dict([told(each) for each in await chain.client.receive_all()])
        assert texts["s1"] == RESTARTED
        assert "has lost this session" in texts["s2"]
        chain.client.send(prompt(1, "s2"), prompt(2, "s1"))
        refusal = await chain.client.receive()
        assert (refusal["id"], "has lost this session" in json.dumps(refusal)) == (1, True)
        assert (await chain.serve("session/prompt"))["sessionId"] == "s1"
