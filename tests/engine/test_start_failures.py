"""Chains that failed to start and run later: what the client's sessions become. In memory."""

from __future__ import annotations

from support.memory_chain import ANSWER, INITIALIZE, chain_of, running_chain

from conductor.chain.start_failure_text import FailureContext

CONTEXT = FailureContext(file="chain.yaml", log=None)
NEW = {"method": "session/new", "params": {"cwd": "/", "mcpServers": []}}


def prompt(id, session):
    return {"id": id, "method": "session/prompt", "params": {"sessionId": session, "prompt": []}}


def said(message):
    return message["params"]["update"]["content"]["text"]


async def fail_to_start(harness):
    """Initialize a chain with an agent that ends; the client is initialized nevertheless."""
    await harness.send(INITIALIZE)
    harness.agent.close()
    assert (await harness.client.receive())["result"]["protocolVersion"] == 1


async def test_a_chain_of_another_version_than_the_client_was_told_does_not_run(autojump_clock):
    async with running_chain(chain_of(0), failure_context=CONTEXT) as harness:
        await fail_to_start(harness)
        await harness.send({"id": 1, **NEW})
        harness.agent.answer(await harness.agent.receive(), {"protocolVersion": 2})

        session = (await harness.client.receive())["result"]["sessionId"]
        await harness.send(prompt(2, session))

        assert "it speaks version 2 of the protocol" in said(await harness.client.receive())
        assert await harness.client.receive() == {"id": 2, "result": {"stopReason": "end_turn"}}
        assert harness.agent.ended


async def test_a_session_that_is_loaded_once_the_chain_runs_belongs_to_the_chain(autojump_clock):
    load = {"method": "session/load", "params": {"sessionId": "old", "cwd": "/", "mcpServers": []}}
    async with running_chain(chain_of(0), failure_context=CONTEXT) as harness:
        await fail_to_start(harness)
        await harness.send({"id": 1, **load})
        harness.agent.close()
        assert await harness.client.receive() == {"id": 1, "result": {}}
        await harness.send({"id": 2, **NEW})
        harness.agent.answer(await harness.agent.receive(), ANSWER)
        harness.agent.answer(await harness.agent.receive(), {"sessionId": "new"})
        assert await harness.client.receive() == {"id": 2, "result": {"sessionId": "new"}}

        await harness.send({"id": 3, **load}, prompt(4, "old"))

        loaded, prompted = await harness.agent.receive_all()
        harness.agent.answer(loaded)
        harness.agent.answer(prompted, {"stopReason": "end_turn"})
        assert await harness.client.receive_all() == [
            {"id": 3, "result": {}},
            {"id": 4, "result": {"stopReason": "end_turn"}},
        ]
