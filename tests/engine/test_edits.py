"""A typed edit of a plugin changes what it names, and nothing else."""

from __future__ import annotations

import json

from support.memory_chain import running_chain, start
from support.peers.wire import MemoryComponent
from support.plugins import plugin

from conductor.proxy import Proxy, on
from conductor.schema import v1

UPDATE = """{"sessionId":"s1","_meta":null,"later":[1,{"x":null}],
"update":{"sessionUpdate":"tool_call_update","toolCallId":"c","title":"old",
"status":"not_known_yet","kind":"quantum","rawInput":{"n":123456789012345678901234567890},
"content":[{"type":"hologram","beams":3},
{"type":"content","content":{"type":"text","text":"t","annotations":null}}],
"locations":null,"_meta":{"a":{"b":[]}},"more":true}}"""
PROMPT = """{"sessionId":"s1","prompt":[{"type":"text","text":"old","_meta":null,"later":{}},
{"type":"smell","of":"x"}],"messageId":null,"_meta":{"trace":"1"},"more":[null]}"""
RESULT = """{"stopReason":"not_known_yet","usage":null,"_meta":{"n":1},"more":{"x":null}}"""


class Edits(Proxy):
    @on("session/update")
    async def update(self, params: v1.SessionNotification, forward):
        params.update.title = "new"
        await forward(params)

    @on("session/prompt")
    async def prompt(self, params: v1.PromptRequest, forward) -> v1.PromptResponse:
        params.prompt[0].text = "new"
        return await forward(params)


async def test_a_typed_edit_changes_what_it_names_and_nothing_else(autojump_clock):
    async with running_chain([plugin("p", Edits()), MemoryComponent("agent", "agent")]) as harness:
        await start(harness)
        harness.client.send({"id": 1, "method": "session/prompt", "params": json.loads(PROMPT)})
        request = await harness.agent.receive()
        harness.agent.send({"method": "session/update", "params": json.loads(UPDATE)})
        harness.agent.answer(request, json.loads(RESULT))

        update, answer = await harness.client.receive_all()
        assert request["params"] == json.loads(PROMPT.replace("old", "new"))
        assert update["params"] == json.loads(UPDATE.replace("old", "new"))
        assert answer["result"] == json.loads(RESULT)
