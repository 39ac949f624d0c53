"""What a restarted component is told, and what the next restart makes of it (virtual clock)."""

from __future__ import annotations

import json

import attrs
import pytest
from support.peers.wire import PassProxy, Peer
from support.played_chain import played_chain, prompt, told, update
from trio.testing import wait_all_tasks_blocked

RESUMES = {"sessionCapabilities": {"resume": {}}}
MODE = {"sessionId": "s1", "modeId": "plan"}


async def set_mode(chain):
    chain.client.send({"id": "mode", "method": "session/set_mode", "params": MODE})
    await chain.serve("session/set_mode")
    await chain.client.receive()


async def restart(chain):
    """Let the agent fail; it is to resume its session next."""
    await chain["agent"].end()
    await chain.restart_agent(able=RESUMES)


async def test_what_the_agent_tells_while_it_is_restored_is_not_what_the_user_has_set(
    tmp_path, autojump_clock
):
    async with played_chain(tmp_path) as chain:
        await chain.open("s1", able=RESUMES)
        await set_mode(chain)
        await restart(chain)
        request = await chain.expect("session/resume")
        chain.agent.send(update("current_mode_update", currentModeId="default"))
        chain.agent.answer(request)

        assert await chain.serve("session/set_mode") == MODE


async def test_what_the_agent_tells_after_a_restart_is_restored_by_the_next(
    tmp_path, autojump_clock
):
    async with played_chain(tmp_path) as chain:
        await chain.open("s1", able=RESUMES)
        await set_mode(chain)
        await restart(chain)
        await chain.serve("session/resume")
        await chain.serve("session/set_mode")
        await chain.client.receive()  # that it was restarted
        chain.agent.send(update("current_mode_update", currentModeId="code"))
        await chain.client.receive()

        await restart(chain)
        await chain.serve("session/resume")

        assert (await chain.serve("session/set_mode"))["modeId"] == "code"


async def test_a_mode_that_was_refused_is_not_set_at_the_next_restart(tmp_path, autojump_clock):
    async with played_chain(tmp_path) as chain:
        await chain.open("s1", able=RESUMES)
        await set_mode(chain)
        await restart(chain)
        await chain.serve("session/resume")
        await chain.refuse("session/set_mode", -32603, "no such mode")
        await chain.client.receive_all()

        await restart(chain)
        await chain.serve("session/resume")

        assert await chain.agent.receive_all() == []


async def test_an_agent_is_restarted_with_the_latest_initialize(tmp_path, autojump_clock):
    async with played_chain(tmp_path) as chain:
        await chain.open()
        params = {"protocolVersion": 1, "_meta": {"x": 2}}
        chain.client.send({"id": "i", "method": "initialize", "params": params})
        await chain.serve("initialize", {"protocolVersion": 1, "agentInfo": {"name": "a"}})
        assert (await chain.client.receive())["result"]["agentInfo"] == {"name": "a"}

        await chain["agent"].end()
        again = await chain.serve("initialize", {"protocolVersion": 1})

        assert again["_meta"] == {"x": 2}


async def test_a_session_that_the_client_resumed_with_its_history_is_resumed_without(
    tmp_path, autojump_clock
):
    async with played_chain(tmp_path, version=2) as chain:
        await chain.open()
        params = {"sessionId": "s1", "cwd": "/", "mcpServers": []}
        replay = {"replayFrom": {"type": "start"}}
        chain.client.send({"id": 1, "method": "session/resume", "params": {**params, **replay}})
        assert await chain.serve("session/resume") == {**params, **replay}
        await chain.client.receive()

        await restart(chain)

        assert await chain.serve("session/resume") == params


async def test_what_waited_for_a_lost_session_is_refused_after_the_notice(tmp_path, autojump_clock):
    async with played_chain(tmp_path) as chain:
        await chain.open("s1")
        await chain.whole_turn(0)
        await chain["agent"].end()
        chain.client.send(prompt(1))
        await chain.restart_agent()

        notice, refusal = await chain.client.receive_all()

        assert "has lost this session" in told(notice)[1]
        assert refusal["id"] == 1
        assert "has lost this session" in refusal["error"]["message"]


@attrs.define(eq=False)
class Adds(PassProxy):
    """Adds something to the result of a new session, and keeps what its successor has answered."""

    results: list = attrs.field(factory=list)

    def reply(self, id, message):
        result = json.loads(message["result"])
        if "sessionId" in result:
            self.results.append(result)
            message = {"result": json.dumps({**result, "added": 1}).encode()}
        super().reply(id, message)


async def test_a_restarted_proxy_gets_the_answers_of_its_successor_not_its_own(
    tmp_path, autojump_clock
):
    async with played_chain(tmp_path, None, {"name": "p"}, peers={"p": Adds}) as chain:
        await chain.open()
        chain.client.send({"id": 1, "method": "session/new", "params": {"cwd": "/"}})
        await chain.serve("session/new", {"sessionId": "s1"})
        answer = {"sessionId": "s1", "added": 1}
        assert await chain.client.receive() == {"id": 1, "result": answer}

        await chain["p"].end()
        await chain.client.receive()

        assert chain["p"].peer.results == [{"sessionId": "s1"}]


@attrs.define(eq=False)
class Old(PassProxy):
    """Knows only the dialect `_proxy`."""

    asked: list = attrs.field(factory=list)

    def take(self, line):
        message = json.loads(line)
        if message.get("method", "").endswith("initialize"):
            self.asked.append(message["method"])
        if message.get("method") == "proxy/initialize":
            self.refuse(message, -32601, "Method not found")
        else:
            super().take(line)


async def test_a_restarted_proxy_is_asked_in_the_dialect_that_it_had(tmp_path, autojump_clock):
    async with played_chain(tmp_path, None, {"name": "p"}, peers={"p": Old}) as chain:
        await chain.open("s1")
        assert chain["p"].peer.asked == ["proxy/initialize", "_proxy/initialize"]

        await chain["p"].end()
        await chain.client.receive()

        assert chain["p"].peer.asked == ["_proxy/initialize"]


@pytest.mark.parametrize("on_failure", ["restart", "bypass"])
async def test_the_end_of_a_chain_is_no_failure_of_its_components(
    tmp_path, on_failure, autojump_clock
):
    async with played_chain(tmp_path, None, {"name": "p", "on_failure": on_failure}) as chain:
        await chain.open("s1")
        chain.client.close()
        await chain.wait_ended()

        assert await chain.client.receive_all() == []
        assert chain.events("component failed") == []


async def test_a_lost_session_is_not_told_of_later_restarts(tmp_path, autojump_clock):
    async with played_chain(tmp_path) as chain:
        await chain.open("s1")
        await chain.whole_turn(0)
        await chain["agent"].end()
        await chain.restart_agent()
        assert "has lost this session" in told(await chain.client.receive())[1]

        await chain["agent"].end()
        await chain.restart_agent()

        assert await chain.client.receive_all() == []


async def test_a_component_that_cannot_be_reached_is_not_tried_in_the_other_dialect(
    tmp_path, autojump_clock
):
    async with played_chain(tmp_path, None, {"name": "p"}, peers={"p": Peer}) as chain:
        chain.client.send({"id": 1, "method": "initialize", "params": {"protocolVersion": 1}})
        await wait_all_tasks_blocked()
        chain["p"].reached = False
        await chain["p"].end("could not be reached")

        error = (await chain.client.receive())["error"]

        assert "could not be reached" in error["message"]
        assert len(chain.programs["p"].processes) == 1
