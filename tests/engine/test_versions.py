"""A client and an agent of different versions, with the adapter between them, at the wire."""

from __future__ import annotations

from support.memory_chain import running_chain
from support.peers.wire import MemoryComponent
from support.plugins import plugin

from proxies.v1_v2 import V1V2

INFO = {"name": "peer", "version": "1"}
V1 = {"protocolVersion": 1, "clientInfo": INFO}
V2 = {"protocolVersion": 2, "info": INFO}
NEW = {"method": "session/new", "params": {"cwd": "/", "mcpServers": []}}
PROMPT = {
    "method": "session/prompt",
    "params": {"sessionId": "s1", "prompt": [{"type": "text", "text": "hi"}]},
}


def update(kind, **members):
    members = {"sessionUpdate": kind, **members}
    return {"method": "session/update", "params": {"sessionId": "s1", "update": members}}


def chunk(text, message="m1"):
    content = {"type": "text", "text": text}
    return update("agent_message_chunk", messageId=message, content=content)


def adapted():
    return [plugin("v1-v2", V1V2()), MemoryComponent("agent", "agent")]


async def set_up(harness, client, agent, answer):
    """Initialize both in their versions, and open a session."""
    await harness.send({"id": 0, "method": "initialize", "params": client})
    refused = await harness.agent.receive()
    assert refused["params"]["protocolVersion"] == client["protocolVersion"]
    harness.agent.refuse(refused, -32602, "unsupported protocol version")
    asked = await harness.agent.receive()
    assert asked["params"].items() >= agent.items()
    harness.agent.answer(asked, answer)
    initialized = await harness.client.receive()
    assert initialized["result"]["protocolVersion"] == client["protocolVersion"]
    await harness.send({"id": 1, **NEW})
    request = await harness.agent.receive()
    harness.agent.answer(request, {"sessionId": "s1"})
    assert await harness.client.receive() == {"id": 1, "result": {"sessionId": "s1"}}


async def test_a_client_of_version_1_has_a_turn_of_an_agent_of_version_2(autojump_clock):
    """The idle state that ends the turn becomes the response, behind all updates."""
    async with running_chain(adapted) as harness:
        await set_up(harness, V1, V2, {"protocolVersion": 2, "capabilities": {}, "info": INFO})
        await harness.send({"id": 2, **PROMPT})
        request = await harness.agent.receive()
        harness.agent.answer(request)
        harness.agent.send(
            update("state_update", state="running"),
            chunk("one"),
            chunk("two"),
            update("state_update", state="idle", stopReason="end_turn"),
            chunk("later", "m2"),
        )

        assert await harness.client.receive_all() == [
            chunk("one"),
            chunk("two"),
            {"id": 2, "result": {"stopReason": "end_turn"}},
            chunk("later", "m2"),
        ]


async def test_a_client_of_version_2_has_a_turn_of_an_agent_of_version_1(autojump_clock):
    """The prompt is answered at once; the response that ends the turn becomes the idle state."""
    async with running_chain(adapted) as harness:
        answer = {"protocolVersion": 1, "agentCapabilities": {}, "agentInfo": INFO}
        await set_up(harness, V2, V1, answer)
        await harness.send({"id": 2, **PROMPT})
        request = await harness.agent.receive()
        harness.agent.send(chunk("one"), chunk("two"))
        harness.agent.answer(request, {"stopReason": "end_turn"})
        harness.agent.send(chunk("later", "m2"))

        answer, *updates = await harness.client.receive_all()
        id = answer["result"]["messageId"]
        assert answer == {"id": 2, "result": {"messageId": id}}
        assert updates == [
            update("state_update", state="running"),
            update("user_message", messageId=id, content=PROMPT["params"]["prompt"]),
            chunk("one"),
            chunk("two"),
            update("state_update", state="idle", stopReason="end_turn"),
            chunk("later", "m2"),
        ]
