"""What holds for each row of the table of adapters."""

from __future__ import annotations

import json
import math
from functools import partial

import pytest
import trio
from support.raw_json import dumps

from conductor import log
from conductor.adapters.negotiated import announced_by_agent, announced_by_client
from conductor.adapters.table import ADAPTERS, adapters_for_agent, adapters_for_client
from conductor.chain.adapter_insertion import adapter_name
from conductor.chainfile import load
from conductor.chainfile.model import Adaptation, ComponentSpec
from conductor.client.embedding import attach_file
from conductor.errors import RemoteProtocolError, RequestError
from conductor.testing import FakeAgent, FakeClient, open_chain

ROWS = {row.name: row for row in ADAPTERS}
EACH = pytest.mark.parametrize("name", ROWS)

PLAIN = {"protocolVersion": 1}
"""Client and agent of version 1 that announce nothing, which most adapters are for."""
PEERS = {
    "normalize": ({**PLAIN, "clientInfo": {"name": "agent-shell"}}, PLAIN),
    "plan_approval": ({**PLAIN, "clientInfo": {"name": "acpx"}}, PLAIN),
    "turn_updates": ({**PLAIN, "clientInfo": {"name": "CodeCompanion.nvim"}}, PLAIN),
    "cursor_questions": (PLAIN, {**PLAIN, "agentInfo": {"name": "Cursor"}}),
    "subagents": (PLAIN, {"protocolVersion": 2}),
    "v1_v2": (PLAIN, {"protocolVersion": 2}),
}
"""Of the others, a client and an agent that need it."""
ABLE_CLIENT = {
    "protocolVersion": 1,
    "clientCapabilities": {
        "fs": {"readTextFile": True, "writeTextFile": True},
        "terminal": True,
        "elicitation": {"form": {}, "url": {}},
        "session": {"notices": {}, "configOptions": {"boolean": {}}},
        "subagents": {},
    },
}
SESSION = {"list": {}, "systemPrompt": {}, "additionalDirectories": {}}
ABLE_AGENT = {
    "protocolVersion": 1,
    "agentCapabilities": {
        "loadSession": True,
        "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
        "sessionCapabilities": SESSION,
        "_meta": {"vendor": {"promptQueueing": True}},
    },
}
STANDS_STILL, JUMPS = math.inf, 0.05
"""Seconds without an event until the virtual clock jumps: files and processes need real time."""
UNDECIDABLE = {"known_kinds"}
"""No capability tells that it is not needed."""


def needed(name, client, agent, setting):
    """The adapters that a client and an agent get by the setting of one."""
    told = announced_by_client(dumps(client))
    answered = announced_by_agent(dumps(agent))
    settings = {"subagents": Adaptation("never"), "cursor_questions": Adaptation("never")}
    settings = {"v1_v2": Adaptation("always" if name == "subagents" else "never")} | settings
    settings[name] = setting
    found = [*adapters_for_client(told, settings), *adapters_for_agent(told, answered, settings)]
    return {each.adapter.name: dict(each.options) for each in found if each.adapter.name == name}


@EACH
def test_it_is_off_forced_or_inserted_if_needed(name):
    client, agent = PEERS.get(name, (PLAIN, PLAIN))

    assert needed(name, client, agent, Adaptation("never")) == {}
    assert list(needed(name, client, agent, Adaptation("auto"))) == [name]
    assert list(needed(name, client, agent, Adaptation("always"))) == [name]
    assert needed(name, client, agent, Adaptation("always", {"x": 1}))[name]["x"] == 1
    if name not in UNDECIDABLE:
        assert needed(name, ABLE_CLIENT, ABLE_AGENT, Adaptation("auto")) == {}
        assert list(needed(name, ABLE_CLIENT, ABLE_AGENT, Adaptation("always"))) == [name]


def chain_file(tmp_path, adapt, agent="{use: test-agent}"):
    path = tmp_path / "chain.yaml"
    path.write_text(f"version: 1\nagent: {agent}\nadapt: {json.dumps(adapt)}\n")
    return load(str(path))


async def inserted(file, initialize):
    """The adapters in a chain."""
    async with attach_file(FakeClient, file) as attached:
        await attached.client.request("initialize", initialize)
        names = [each.name for each in attached.chain.components]
    return [each.removeprefix("adapter:") for each in names if each.startswith("adapter:")]


@pytest.mark.parametrize(("mode", "expected"), [("never", []), ("always", list(ROWS))])
async def test_a_chain_with_an_agent_in_python_has_what_its_file_says(tmp_path, mode, expected):
    assert await inserted(chain_file(tmp_path, dict.fromkeys(ROWS, mode)), PLAIN) == [
        row.name
        for side in ("client", "agent")
        for row in ADAPTERS
        if row.side == side
        if row.name in expected
    ]


# -- peers that answer with something else than the protocol says ----------------------------------

GARBAGE = [
    None,
    [],
    "x",
    7,
    {},
    {"sessionId": 7, "stopReason": 7, "outcome": 7, "configOptions": 7},
]
PARAMS = {
    "sessionId": "session-1",
    "cwd": "/",
    "mcpServers": [],
    "additionalDirectories": ["/lib"],
    "prompt": [
        {"type": "text", "text": "hi"},
        {"type": "audio", "data": "", "mimeType": "audio/wav"},
    ],
    "systemPrompt": {"mode": "append", "content": []},
    "configId": "c",
    "value": "on",
    "modeId": "m",
}
ASKED = {
    "sessionId": "session-1",
    "toolCall": {"toolCallId": "1", "title": "Plan", "kind": "switch_mode"},
    "options": [{"optionId": "a", "name": "A", "kind": "allow_once"}],
    "mode": "form",
    "message": "Which?",
    "requestedSchema": {
        "type": "object",
        "properties": {"a": {"type": "string", "enum": ["x", "y"]}},
        "required": ["a"],
    },
    "questions": [{"id": "q", "prompt": "p", "options": [{"id": "1", "label": "a"}]}],
    "toolCallId": "1",
    "plan": "p",
    "path": "/work/a.txt",
    "content": "",
    "command": "true",
    "terminalId": "t",
}
TO_CLIENT = (
    *("session/request_permission", "elicitation/create", "cursor/ask_question"),
    *("cursor/create_plan", "fs/read_text_file", "terminal/create", "terminal/output"),
)


@pytest.fixture
def adapter(name, tmp_path):
    """The adapter, as it is inserted, with files of its own."""
    options = {"system_prompt": {"of_client": True}, "v1_v2": {"agent_version": 2}}.get(name, {})
    if name in ("journal", "prompt_content"):
        options = {"directory": str(tmp_path / "files")}
    return ComponentSpec(name=adapter_name(name), use=name, options=options)


async def answered(request, *args):
    """The result or the error of a request; fails if there is none."""
    with trio.fail_after(20):
        try:
            return await request(*args)
        except RequestError as exc:
            return exc


async def never(params):
    await trio.sleep_forever()


def check(name, answer, got):
    """An error is the peer's, or names the adapter."""
    if isinstance(got, RequestError) and got.code != -32601:
        assert name in f"{got} {got.data}", f"{answer!r} became {got} {got.data}"


@EACH
async def test_answers_of_a_client_that_are_nonsense_are_errors_or_passed(name, adapter):
    agent = FakeAgent()
    async with open_chain(adapter, agent) as client:
        client.handlers.clear()
        able = {"elicitation": {"form": {}}, "terminal": True} if name == "cursor_questions" else {}
        await client.initialize(capabilities=able)
        await client.new_session("/work")
        for method in TO_CLIENT:
            for answer in GARBAGE:
                for each in TO_CLIENT:
                    client.handlers[each] = lambda params, answer=answer: answer
                check(name, answer, await answered(agent.endpoint.request, method, ASKED))
            client.handlers.clear()
            check(name, -32601, await answered(agent.endpoint.request, method, ASKED))


MALFORMED = [7, {}, [7], [{"type": 7}]]
UPDATES = [
    *(
        {"sessionUpdate": kind, "toolCallId": "t", member: value}
        for kind in ("tool_call", "tool_call_update", "plan", "agent_message_chunk", "notice")
        for member in ("content", "status", "kind", "entries", "toolCallId", "title")
        for value in MALFORMED
    ),
    *({"sessionUpdate": "available_commands_update", "availableCommands": e} for e in MALFORMED),
    *({"sessionUpdate": "config_option_update", "configOptions": each} for each in MALFORMED),
    *({"sessionUpdate": "subagent_update", "sessionId": each} for each in MALFORMED),
]


@EACH
async def test_malformed_members_of_updates_and_questions_are_no_failure(name, adapter, capsys):
    log.configure("warning", as_json=True)
    agent = FakeAgent()
    async with open_chain(adapter, agent) as client:
        client.handlers |= {method: lambda params: {} for method in TO_CLIENT}
        await client.initialize(capabilities={})
        session = await client.new_session("/work")
        for update in UPDATES:
            agent.update(session, update)
        for member in ("mode", "toolCall", "questions", "command", "path", "title"):
            for method in TO_CLIENT:
                for value in MALFORMED:
                    asked = {**ASKED, member: value}
                    with trio.move_on_after(0.05):  # a form waits for the next prompt
                        check(name, value, await answered(agent.endpoint.request, method, asked))
        agent.handlers["session/prompt"] = lambda params: {"stopReason": "end_turn"}
        await answered(client.prompt, session, "again")

    assert "handler failed" not in capsys.readouterr().err


@EACH
async def test_what_the_agent_never_answers_ends_when_it_is_cancelled(adapter, virtual_clock):
    virtual_clock.autojump_threshold = STANDS_STILL
    agent = FakeAgent()
    async with open_chain(adapter, agent) as client:
        await client.initialize(capabilities={})
        session = await client.new_session("/work")
        agent.handlers["session/prompt"] = never
        virtual_clock.autojump_threshold = JUMPS
        with trio.fail_after(60):
            with trio.move_on_after(1):
                await client.prompt(session, "hi")
            for method in ("session/new", "session/load", "session/list", "session/set_mode"):
                agent.handlers[method] = never
                with trio.move_on_after(1):
                    await answered(client.request, method, PARAMS)
            agent.handlers["session/prompt"] = lambda params: {"stopReason": "end_turn"}
            assert (await client.prompt(session, "again"))["stopReason"] == "end_turn"


@EACH
async def test_what_the_client_never_answers_ends_when_it_is_cancelled(adapter, virtual_clock):
    virtual_clock.autojump_threshold = STANDS_STILL
    agent = FakeAgent()
    async with open_chain(adapter, agent) as client:
        client.handlers |= dict.fromkeys(TO_CLIENT, never)
        await client.initialize(capabilities={})
        session = await client.new_session("/work")
        virtual_clock.autojump_threshold = JUMPS
        with trio.fail_after(60):
            for method in TO_CLIENT:
                with trio.move_on_after(1):
                    await answered(agent.endpoint.request, method, ASKED)
            agent.handlers["session/prompt"] = lambda params: {"stopReason": "end_turn"}
            assert (await client.prompt(session, "again"))["stopReason"] == "end_turn"


@EACH
async def test_an_agent_that_does_not_initialize_is_an_error(name, adapter):
    for answer in (None, [], "x", {"agentCapabilities": 7, "protocolVersion": "x"}):
        agent = FakeAgent(handlers={"initialize": lambda params, answer=answer: answer})
        async with open_chain(adapter, agent) as client:
            try:
                got = await answered(partial(client.initialize, capabilities={}))
            except RemoteProtocolError as exc:  # the client of the test
                got = exc
            check(name, answer, got)
