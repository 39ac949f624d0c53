"""What docs/reliability.md promises of a chain that does not start (virtual clock)."""

from __future__ import annotations

import pytest
import trio
from support.peers.wire import Peer
from support.played_chain import played_chain, prompt, state, told

BOTH = pytest.mark.parametrize("version", [1, 2])
INITIALIZE = {"id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
SET_UPS = ["session/new", "session/load", "session/resume", "session/fork"]


async def ask(chain, method, id="r", **params):
    """The client's request; returns its answer, after the updates that came before it."""
    chain.client.send({"id": id, "method": method, "params": params})
    while (answer := await chain.client.receive()).get("id") != id:
        pass
    return answer


async def explained(chain):
    """A chain that has failed to start, and has an explained session; returns the session."""
    chain.programs["agent"].missing = True
    answer = await ask(chain, "initialize", protocolVersion=chain.version, _meta={"x": 1})
    assert answer["result"]["protocolVersion"] == chain.version
    session = (await ask(chain, "session/new", cwd="/", mcpServers=[]))["result"]["sessionId"]
    chain.programs["agent"].missing = False
    return session


async def reply(chain, session):
    """The text that answers a prompt."""
    chain.client.send(prompt("p", session))
    came = await chain.client.receive_all()
    texts = [
        each["params"]["update"]["content"]["text"]
        for each in came
        if each.get("params", {}).get("update", {}).get("sessionUpdate") == "agent_message_chunk"
    ]
    if chain.version == 1:
        assert came[-1] == {"id": "p", "result": {"stopReason": "end_turn"}}
    else:
        assert came[-1] == state("idle", session, stopReason="end_turn")
    return "".join(texts)


# -- error -----------------------------------------------------------------------------------------


async def test_a_failed_start_is_the_error_of_initialize_with_its_reason_and_place(
    tmp_path, autojump_clock
):
    """The client may repeat `initialize`: all components start anew."""
    async with played_chain(tmp_path, None, {"name": "p"}) as chain:
        chain.client.send({**INITIALIZE, "id": 1})
        await chain.expect("initialize")
        chain["agent"].print("no license")
        await chain["agent"].exit(9)

        answer = await chain.client.receive()
        error = answer["error"]
        assert (answer["id"], error["code"]) == (1, -32603)
        assert error["message"].startswith(
            "component 'agent' did not start: it exited with status 9"
        )
        assert error["data"].pop("place").startswith(f"{tmp_path}/chain.yaml:")
        assert error["data"] == {
            "component": "agent",
            "reason": "it exited with status 9",
            "command": ["agent"],
            "exitStatus": "exited with status 9",
            "stderr": ["no license"],
        }
        await trio.sleep(60)  # it is not restarted
        assert len(chain.programs["agent"].processes) == 1
        await chain.open("s1")
        assert len(chain.programs["p"].processes) == 2
        assert chain.programs["p"].processes[0].status is not None


async def test_a_program_that_cannot_be_started_is_named(tmp_path, autojump_clock):
    async with played_chain(tmp_path) as chain:
        chain.programs["agent"].missing = True

        error = (await ask(chain, "initialize", protocolVersion=1))["error"]

        assert error["message"] == ("component 'agent' did not start: command not found: agent")
        assert error["data"]["component"] == "agent"
        chain.client.close()
        assert (await chain.wait_ended()).reason == "never started"


@pytest.mark.parametrize("name", ["agent", "p"])
async def test_start_timeout_is_30_seconds_and_names_who_did_not_answer(
    tmp_path, name, autojump_clock
):
    async with played_chain(tmp_path, None, {"name": "p"}, peers={name: Peer}) as chain:
        chain.client.send(INITIALIZE)
        await trio.sleep(29.9)
        await chain.client.receive_nothing()
        await trio.sleep(0.2)

        error = (await chain.client.receive())["error"]
        assert error["message"].startswith(f"component '{name}' did not start: it did not answer")
        assert "within 30 s (start_timeout)" in error["message"]


async def test_the_chain_file_is_read_again_for_each_attempt(tmp_path, autojump_clock):
    (tmp_path / "mine.py").write_text("from conductor.proxy import Proxy\nclass Mine(Proxy:\n")
    async with played_chain(tmp_path, None, {"use": "./mine.py:Mine", "name": "mine"}) as chain:
        error = (await ask(chain, "initialize", protocolVersion=1))["error"]
        assert error["data"]["component"] == "mine"
        assert "SyntaxError" in error["message"]

        (tmp_path / "mine.py").write_text(
            "from conductor.proxy import Proxy\n\n\nclass Mine(Proxy):\n    pass\n"
        )

        await chain.open("s1")


# -- explain ---------------------------------------------------------------------------------------


@BOTH
async def test_with_explain_each_prompt_is_answered_with_the_failure(
    tmp_path, version, autojump_clock
):
    """What is wrong, where, what to try, and where the log is."""
    async with played_chain(tmp_path, version=version, explains=True) as chain:
        session = await explained(chain)

        for _ in range(2):
            text = await reply(chain, session)
            assert "component 'agent' did not start: command not found: agent" in text
            assert f"- Where: `{tmp_path}/chain.yaml:" in text
            assert "- Install the program, or write its absolute path" in text
            assert "- The log is what acp-conductor writes to stderr" in text


@BOTH
@pytest.mark.parametrize("method", SET_UPS)
async def test_each_set_up_of_a_session_tries_again_with_the_clients_initialize(
    tmp_path, version, method, autojump_clock
):
    """The new session runs in the chain; those from before keep the explanation."""
    async with played_chain(tmp_path, version=version, explains=True) as chain:
        old = await explained(chain)
        params = {"cwd": "/", "mcpServers": [], "sessionId": "real"}
        chain.client.send({"id": "s", "method": method, "params": params})
        received = await chain.serve("initialize", {"protocolVersion": version})
        assert received.items() >= {"protocolVersion": version, "_meta": {"x": 1}}.items()
        assert await chain.serve(method, {"sessionId": "real"}) == params

        assert await chain.client.receive() == {"id": "s", "result": {"sessionId": "real"}}
        await chain.client.receive()  # a restart is needed for all of the chain
        request = await chain.prompt(1, "real")
        chain.finish(request, "real")
        await chain.client.receive_all()
        assert "Open a new session" in await reply(chain, old)
        assert await chain.agent.receive_all() == []


async def test_a_replay_of_an_explained_session_is_empty_and_complete(tmp_path, autojump_clock):
    async with played_chain(tmp_path, version=2, explains=True) as chain:
        await explained(chain)
        replay = {"sessionId": "old", "cwd": "/", "replayFrom": {"type": "start"}}
        chain.programs["agent"].missing = True
        chain.client.send({"id": "s", "method": "session/resume", "params": replay})

        update = {"sessionId": "old", "update": {"sessionUpdate": "replay_complete"}}
        assert await chain.client.receive_all() == [
            {"method": "session/update", "params": update},
            {"id": "s", "result": {}},
        ]


async def test_another_failed_attempt_is_explained_too(tmp_path, autojump_clock):
    async with played_chain(tmp_path, explains=True) as chain:
        await explained(chain)
        chain.client.send({"id": "s", "method": "session/new", "params": {"cwd": "/"}})
        await chain.expect("initialize")
        await chain["agent"].exit(4)

        session = (await chain.client.receive())["result"]["sessionId"]

        assert "it exited with status 4" in await reply(chain, session)
        chain.client.close()
        assert (await chain.wait_ended()).reason == "never started"


CAPABILITIES = {
    1: {"agentCapabilities": {"loadSession": True, "promptCapabilities": {"image": True}}},
    2: {"capabilities": {"session": {"prompt": {"image": {}}}}},
}


@BOTH
async def test_the_first_new_session_says_that_a_restart_is_needed_for_all_of_the_chain(
    tmp_path, version, autojump_clock
):
    async with played_chain(tmp_path, version=version, explains=True) as chain:
        await explained(chain)
        for id in ("first", "second"):
            chain.client.send({"id": id, "method": "session/new", "params": {"cwd": "/"}})
            if id == "first":
                answer = {"protocolVersion": version, **CAPABILITIES[version]}
                await chain.serve("initialize", answer)
            await chain.serve("session/new", {"sessionId": id})

        answer, told_first, *others = await chain.client.receive_all()

        assert answer == {"id": "first", "result": {"sessionId": "first"}}
        session, text = told(told_first)
        assert session == "first"
        assert "Restart the agent in your editor" in text or "restart the agent" in text
        assert others == [{"id": "second", "result": {"sessionId": "second"}}]


@BOTH
async def test_a_chain_of_another_version_can_be_used_only_after_a_restart(
    tmp_path, version, autojump_clock
):
    adapt = {"v1_v2": "never"}
    async with played_chain(tmp_path, version=version, explains=True, adapt=adapt) as chain:
        await explained(chain)
        chain.client.send({"id": "s", "method": "session/new", "params": {"cwd": "/"}})
        await chain.serve("initialize", {"protocolVersion": 3 - version})

        session = (await chain.client.receive())["result"]["sessionId"]

        text = await reply(chain, session)
        assert f"the chain starts now, but it speaks version {3 - version}" in text
        assert "Restart the agent in your editor" in text
        assert chain.agent.ended


async def test_a_session_that_is_loaded_once_the_chain_runs_belongs_to_the_chain(
    tmp_path, autojump_clock
):
    """Although an earlier attempt to load it was explained in it."""
    load = {"method": "session/load", "params": {"sessionId": "old", "cwd": "/", "mcpServers": []}}
    async with played_chain(tmp_path, explains=True) as chain:
        await explained(chain)
        chain.programs["agent"].missing = True
        chain.client.send({"id": 1, **load})
        assert await chain.client.receive() == {"id": 1, "result": {}}
        chain.programs["agent"].missing = False
        chain.client.send({"id": 2, "method": "session/new", "params": {"cwd": "/"}})
        await chain.serve("initialize", {"protocolVersion": 1})
        await chain.serve("session/new", {"sessionId": "new"})
        assert await chain.client.receive() == {"id": 2, "result": {"sessionId": "new"}}
        await chain.client.receive()  # a restart is needed for all of the chain

        chain.client.send({"id": 3, **load}, prompt(4, "old"))

        await chain.serve("session/load")
        await chain.serve("session/prompt", {"stopReason": "end_turn"})
        assert await chain.client.receive_all() == [
            {"id": 3, "result": {}},
            {"id": 4, "result": {"stopReason": "end_turn"}},
        ]


async def test_an_agent_that_requires_a_login_can_be_used_only_after_a_restart(
    tmp_path, autojump_clock
):
    async with played_chain(tmp_path, explains=True) as chain:
        await explained(chain)
        chain.client.send({"id": "s", "method": "session/new", "params": {"cwd": "/"}})
        methods = [{"id": "browser", "name": "In a browser"}]
        await chain.serve("initialize", {"protocolVersion": 1, "authMethods": methods})
        await chain.refuse("session/new", -32000, "Authentication required")

        session = (await chain.client.receive())["result"]["sessionId"]

        text = await reply(chain, session)
        assert "requires a login" in text
        assert "Restart the agent in your editor" in text


async def test_requests_during_a_failing_start_are_answered_in_order(tmp_path, autojump_clock):
    async with played_chain(tmp_path, explains=True) as chain:
        chain.programs["agent"].missing = True
        chain.client.send(
            {**INITIALIZE, "id": "i"},
            {"id": "n", "method": "session/new", "params": {"cwd": "/", "mcpServers": []}},
            {"id": "l", "method": "session/list", "params": {}},
            {"id": "x", "method": "_vendor/x"},
        )

        answers = await chain.client.receive_all()

        assert [answer["id"] for answer in answers] == ["i", "n", "l", "x"]
        assert answers[2]["result"] == {"sessions": []}
        assert "command not found" in answers[3]["error"]["message"]
