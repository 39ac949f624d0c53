"""Turns of version 2, whose prompt is answered when they begin."""

from __future__ import annotations

import json
from typing import Any

from support.raw_json import compact, dumps
from support.server_clients import (
    PATIENCE,
    ask,
    initialize,
    new_session,
    request,
    serving,
    websocket,
)

from conductor.network.line_channel import LineChannel
from conductor.server.active_turns import TurnTrackingChannel
from conductor.transport.memory import memory_pair


def told(session: str, state: str, kind: str = "state_update", **more: object) -> bytes:
    update = {"sessionUpdate": kind, "state": state, **more}
    params = {"sessionId": session, "update": update}
    return dumps({"jsonrpc": "2.0", "method": "session/update", "params": params})


async def test_a_turn_runs_until_the_agent_reports_its_end():
    theirs, ours = memory_pair()
    agent, lines = LineChannel(theirs), TurnTrackingChannel(ours)
    seen = []
    for line in (
        told("a", "running"),
        told("b", "running"),
        told("c", "running", kind="agent_message_chunk state_update"),
        b'{"params": "state_update"}',
        told("a", "idle"),
        told("b", "requires_action"),
    ):
        await agent.send([line])
        assert await lines.receive() == [line]
        seen.append(sorted(lines.running))

    assert seen == [["a"], ["a", "b"], ["a", "b"], ["a", "b"], ["b"], ["b"]]


async def test_the_end_of_a_turn_is_reported_once_with_its_stop_reason():
    theirs, ours = memory_pair()
    reasons: list[str | None] = []
    agent, lines = LineChannel(theirs), TurnTrackingChannel(ours, turn_ended=reasons.append)
    for line in (
        told("a", "idle", stopReason="end_turn"),  # of a turn that this client did not see
        told("a", "running"),
        told("a", "idle", stopReason="refusal"),
        told("a", "idle", stopReason="refusal"),
        told("b", "running"),
        told("b", "idle", stopReason=["malformed"]),
    ):
        await agent.send([line])
        await lines.receive()

    assert reasons == ["refusal", None]


PLUGIN = """
import trio
from conductor.proxy import Agent, on


class Turns(Agent):
    @on("initialize")
    async def initialize(self, params: dict):
        return {"protocolVersion": 2, "capabilities": {}, "info": {"name": "t", "version": "1"}}

    @on("session/new")
    async def new(self, params: dict):
        return {"sessionId": "s"}

    @on("session/prompt")
    async def prompt(self, params: dict):
        await self._tell("running")
        return {}

    @on("session/cancel")
    async def cancel(self, params: dict):
        await self._tell("idle", stopReason="cancelled")

    async def _tell(self, state, **more):
        update = {"sessionUpdate": "state_update", "state": state, **more}
        await self.client.notify("session/update", {"sessionId": "s", "update": update})
"""


async def test_a_turn_of_version_2_is_not_cut_when_the_server_drains(tmp_path):
    (tmp_path / "turns.py").write_text(PLUGIN)
    chain = "version: 1\nagent: {use: ./turns.py:Turns}\n"
    async with (
        serving(tmp_path, chain=chain, timeouts={"drain": PATIENCE}) as server,
        websocket(server) as socket,
    ):
        hello = initialize()
        hello["params"] = {"protocolVersion": 2, "capabilities": {}, "info": {}}
        await ask(socket, hello)
        await ask(socket, new_session(1))
        (client,) = server.clients.by_id.values()
        reasons: list[str | None] = []
        server.clients.turn_ended = reasons.append
        await socket.send_message(compact(request(2, "session/prompt", sessionId="s")))
        record_activity: list[Any] = [json.loads(await socket.get_message()) for _ in range(2)]
        busy = client.busy
        await socket.send_message(compact(request(3, "session/cancel", sessionId="s")))
        await ask(socket, request(4, "session/list"))

        assert any(message.get("id") == 2 for message in record_activity)
        assert (busy, client.busy) == (True, False)
        assert reasons == ["cancelled"]


async def test_turns_of_sessions_with_long_ids_are_not_remembered():
    theirs, ours = memory_pair()
    agent, lines = LineChannel(theirs), TurnTrackingChannel(ours)
    await agent.send([told("x" * 1025, "running"), told("x" * 1024, "running")])
    await lines.receive()

    assert lines.running == {"x" * 1024}
