from __future__ import annotations

import pytest

from conductor.proxy import Proxy, RawMessage, on
from conductor.testing import FakeAgent
from proxies.known_kinds import KnownKinds

ORIGINAL = "acp-conductor/original"
CHUNK = {"sessionUpdate": "agent_message_chunk"}


def text(value, **more):
    return {"type": "text", "text": value, **more}


async def shown(chain, *steps, capabilities=None, proxy=None):
    """The updates that the client gets for those of the agent."""
    agent = FakeAgent(turns=[list(steps)])
    async with chain(proxy or KnownKinds(), agent, strict=True) as client:
        await client.initialize(capabilities=capabilities or {})
        opened = await client.request("session/new", {"cwd": "/work", "mcpServers": []})
        await client.prompt(opened["sessionId"], "hi")
    return client.transcript.updates()


@pytest.mark.parametrize(
    ("update", "kind", "content"),
    [
        ({"content": text("a")}, "agent_message_chunk", text("a")),
        ({"content": [text("a")]}, "agent_message_chunk", text("a")),
        ({"title": "Rain", "description": "soon"}, "agent_message_chunk", text("[Rain: soon]\n")),
        ({"message": "Rain"}, "agent_message_chunk", text("[Rain]\n")),
        ({"content": "Rain"}, "agent_message_chunk", text("[Rain]\n")),
        (
            {"sessionUpdate": "user_note", "content": text("a")},
            "user_message_chunk",
            text("a"),
        ),
        (
            {"sessionUpdate": "agent_thought", "messageId": "m", "content": [text("a")]},
            "agent_thought_chunk",
            text("a"),
        ),
        (
            {"sessionUpdate": "notice", "severity": "warning", "title": "Hot"},
            "agent_message_chunk",
            text("\n\n[warning: Hot]\n\n"),
        ),
    ],
)
async def test_an_update_of_an_unknown_kind_is_a_message(chain, update, kind, content):
    update = {"sessionUpdate": "weather_update", **update, "_meta": {"mine": 1}}
    assert await shown(chain, update) == [
        {"sessionUpdate": kind, "content": content, "_meta": {"mine": 1, ORIGINAL: update}}
    ]


@pytest.mark.parametrize(
    "update",
    [
        {"sessionUpdate": "weather_update", "degrees": 20},
        {"sessionUpdate": "_vendor/update", "title": "Rain"},
        {"sessionUpdate": "compaction_update", "compactionId": "c", "status": "in_progress"},
        {"sessionUpdate": "state_update", "state": "running", "title": "Rain"},
    ],
)
async def test_what_has_nothing_to_show_is_left_out(chain, update):
    assert await shown(chain, update, "end") == [{**CHUNK, "content": text("end")}]


async def test_a_plan_with_an_id_is_the_plan(chain):
    entry = {"content": "a", "status": "cancelled", "priority": "medium"}
    plan = {"type": "items", "planId": "p", "entries": [entry]}
    update = {"sessionUpdate": "plan_update", "plan": plan}
    removed = {"sessionUpdate": "plan_removed", "planId": "p"}
    assert await shown(chain, update, removed) == [
        {
            "sessionUpdate": "plan",
            "entries": [{"content": "a (cancelled)", "status": "completed", "priority": "medium"}],
            "_meta": {ORIGINAL: update},
        },
        {"sessionUpdate": "plan", "entries": [], "_meta": {ORIGINAL: removed}},
    ]


async def test_what_the_client_announces_passes(chain):
    capabilities = {"session": {"notices": {}, "compaction": {}}, "plan": {}, "subagents": {}}
    updates = [
        {"sessionUpdate": "notice", "title": "Hot"},
        {"sessionUpdate": "compaction_update", "compactionId": "c", "status": "in_progress"},
        {"sessionUpdate": "plan_removed", "planId": "p"},
        {"sessionUpdate": "subagent_update", "sessionId": "c"},
    ]
    assert await shown(chain, *updates, capabilities=capabilities) == updates


async def test_what_the_client_is_said_to_lack_is_unknown(chain):
    lacks = KnownKinds(lacks=["usage_update", "session_info_update"])
    steps = [
        {"sessionUpdate": "usage_update", "used": 1, "size": 2},
        {"sessionUpdate": "session_info_update", "title": "Trip"},
    ]
    (update,) = await shown(chain, *steps, proxy=lacks)
    assert update["content"] == text("[Trip]\n")


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"type": "video", "uri": "file:///a.mp4"}, "file:///a.mp4"),
        ({"type": "card", "title": "Rain", "uri": "x:y"}, "Rain"),
        ({"type": "card"}, "[content of type card]"),
    ],
)
async def test_unknown_content_is_a_text(chain, block, said):
    block = {**block, "_meta": {"mine": 1}}
    expected = text(said, _meta={"mine": 1, ORIGINAL: block})
    call = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "T"}
    steps = [
        {**CHUNK, "messageId": "m", "content": block},
        {**call, "content": [{"type": "content", "content": block}, block, text("a")]},
    ]
    wrapped = {"type": "content", "content": expected}
    bare = {"type": "content", "content": text("a")}
    assert await shown(chain, *steps) == [
        {**CHUNK, "messageId": "m", "content": expected},
        {**call, "content": [wrapped, wrapped, bare]},
    ]


@pytest.mark.parametrize(
    ("kind", "status", "known"),
    [("browse", "queued", "in_progress"), ("plan", "cancelled", "failed")],
)
async def test_an_unknown_tool_is_another_one(chain, kind, status, known):
    call = {"sessionUpdate": "tool_call_update", "toolCallId": "c", "rawInput": {"a": 1}}
    (update,) = await shown(chain, {**call, "kind": kind, "status": status})
    original = {"kind": kind, "status": status}
    assert update == {**call, "kind": "other", "status": known, "_meta": {ORIGINAL: original}}


async def test_unknown_values_of_a_plan_are_the_nearest(chain):
    entry = {"content": "a", "status": "blocked", "priority": "urgent", "_meta": {"mine": 1}}
    (update,) = await shown(chain, {"sessionUpdate": "plan", "entries": [entry]})
    original = {"status": "blocked", "priority": "urgent"}
    assert update["entries"] == [
        {
            "content": "a",
            "status": "pending",
            "priority": "medium",
            "_meta": {"mine": 1, ORIGINAL: original},
        }
    ]


async def test_unknown_answers_of_a_question_are_the_nearest(chain):
    agent = FakeAgent()
    kinds = ["allow_session", "allow_always_here", "reject_all", "allow_once"]
    options = [{"optionId": kind, "name": kind, "kind": kind} for kind in kinds]

    async def ask(session):
        call = {"toolCallId": "c", "kind": "browse"}
        params = {"sessionId": session, "toolCall": call, "options": options}
        answer = await agent.endpoint.request("session/request_permission", params)
        assert answer["outcome"]["optionId"] == "allow_session"

    agent.turns = [[ask]]
    async with chain(KnownKinds(), agent, strict=True) as client:
        await client.initialize()
        opened = await client.request("session/new", {"cwd": "/work", "mcpServers": []})
        await client.prompt(opened["sessionId"], "hi")
    (asked,) = client.transcript.of("session/request_permission", "request")
    known = ["allow_once", "allow_always", "reject_once", "allow_once"]
    assert [each["kind"] for each in asked.params["options"]] == known
    assert asked.params["options"][0]["_meta"] == {ORIGINAL: {"kind": "allow_session"}}
    assert asked.params["options"][3] == options[3]
    assert asked.params["toolCall"]["kind"] == "other"


async def test_options_and_inputs_of_other_types_are_left_out(chain):
    agent = FakeAgent()
    select = {"id": "m", "name": "M", "type": "select", "currentValue": "a", "options": []}
    options = [select, {"id": "t", "type": "slider"}, {"id": "b", "type": "boolean"}]
    agent.handlers["session/new"] = lambda _: {"sessionId": "s", "configOptions": options}
    agent.handlers["session/set_config_option"] = lambda _: {"configOptions": options}
    command = {"name": "go", "description": "Goes", "input": {"type": "form", "fields": []}}
    plain = {"name": "on", "description": "On", "input": {"hint": "what"}}
    agent.turns = [
        [
            {"sessionUpdate": "config_option_update", "configOptions": options},
            {"sessionUpdate": "available_commands_update", "availableCommands": [command, plain]},
        ]
    ]
    async with chain(KnownKinds(), agent, strict=True) as client:
        await client.initialize(capabilities={})
        opened = await client.request("session/new", {"cwd": "/work", "mcpServers": []})
        assert opened["configOptions"] == [select]
        chosen = {"sessionId": "s", "configId": "m", "value": "a"}
        answer = await client.request("session/set_config_option", chosen)
        assert answer["configOptions"] == [select]
        await client.prompt("s", "hi")
    first, second = client.transcript.updates()
    assert first["configOptions"] == [select]
    kept = {ORIGINAL: {"input": command["input"]}}
    assert second["availableCommands"] == [{**command, "input": None, "_meta": kept}, plain]


async def test_an_unknown_stop_reason_is_the_end_of_the_turn(chain):
    paused = {"stopReason": "paused", "_meta": {"mine": 1}}
    agent = FakeAgent(turns=[[paused], [{"stopReason": "refusal"}]])
    async with chain(KnownKinds(), agent, strict=True) as client:
        await client.initialize()
        session = (await client.request("session/new", {"cwd": "/", "mcpServers": []}))["sessionId"]
        assert await client.prompt(session, "hi") == {
            "stopReason": "end_turn",
            "_meta": {"mine": 1, ORIGINAL: {"stopReason": "paused"}},
        }
        assert await client.prompt(session, "hi") == {"stopReason": "refusal"}


class Bytes(Proxy):
    """Keeps the updates and answers as they are written."""

    def __init__(self):
        self.seen = []

    @on("*")
    async def see(self, message: RawMessage):
        if message.method in ("session/update", "session/prompt") and message.source == "agent":
            self.seen.append(message.payload)


async def test_what_is_known_keeps_its_bytes_and_what_is_not_its_numbers(chain):
    updates = [
        b'{"sessionUpdate":"agent_message_chunk", "content":{"type":"text","text":"\\u00e9"}}',
        b'{"sessionUpdate":"tool_call","toolCallId":"c","title":"T","rawInput":1.10}',
        b'{"sessionUpdate":"agent_message_chunk","content":5}',
        b'{"sessionUpdate":"weather","content":{"type":"text","text":"a"},"n":1.10}',
        b'{"content":{"type":"card","n":1.10},"sessionUpdate":"agent_message_chunk","x":0.10}',
    ]
    agent = FakeAgent()

    def send(session):
        for each in updates:
            agent.endpoint.notify("session/update", b'{"sessionId":"session-1","update":%b}' % each)

    agent.turns = [[send]]
    before = Bytes()
    async with chain(before, KnownKinds(), agent, strict=True) as client:
        await client.initialize()
        opened = await client.request("session/new", {"cwd": "/work", "mcpServers": []})
        await client.prompt(opened["sessionId"], "hi")
    passed = [b'{"sessionId":"session-1","update":%b}' % each for each in updates[:3]]
    *seen, weather, card, _ = before.seen
    assert seen == passed
    assert b'"acp-conductor/original":%b' % updates[3] in weather
    assert b'"acp-conductor/original":{"type":"card","n":1.10}' in card
    assert card.endswith(b'"sessionUpdate":"agent_message_chunk","x":0.10}}')
