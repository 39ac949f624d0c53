from __future__ import annotations

import base64
import json
import random

import pytest
from support.raw_json import compact

from conductor.proxy import RequestError
from conductor.schema import METHODS
from conductor.testing import FakeAgent
from conductor.testing.updates import chunk
from proxies.redact import Redact

TOKEN = "ghp" + "_" + "a1B2" * 9
SHOWN = "[redacted:github-token:1]"
COMMANDS = {"sessionUpdate": "available_commands_update", "availableCommands": []}
TOOL = {"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "Look"}


def said(client):
    """What the client heard, in order: texts by their kind, other updates by name."""
    heard = []
    for update in client.transcript.updates():
        content = update.get("content")
        text = content.get("text") if isinstance(content, dict) else None
        heard.append(update["sessionUpdate"] if text is None else text)
    return heard


async def converse(chain, *turn, version=1, proxy=None, prompt="hi"):
    agent = FakeAgent(turns=[list(turn)])
    async with chain(proxy or Redact(), agent) as client:
        await client.initialize(version=version)
        session = await client.new_session("/work")
        answer = await client.prompt_turn(session, prompt)
        ends = "answer to session/prompt", "session/update state_update"
        assert client.transcript.labels[-1] in ends
        return client, agent, answer


def shown_in_version_2(client):
    """The updates of the turn, without the states that begin and end it."""
    _, *shown, _ = client.transcript.updates()
    return shown


async def test_a_secret_in_a_prompt_does_not_reach_the_agent(chain):
    resource = {"uri": "file:///x", "text": f"KEY={TOKEN}"}
    blocks = [
        {"type": "text", "text": f"use {TOKEN}"},
        {"type": "resource", "resource": resource},
        {"type": "image", "data": TOKEN, "mimeType": "image/png"},
    ]
    _, agent, _ = await converse(chain, prompt=blocks)

    assert agent.transcript.of("session/prompt", "request")[0].params["prompt"] == [
        {"type": "text", "text": f"use {SHOWN}"},
        {"type": "resource", "resource": {"uri": "file:///x", "text": f"KEY={SHOWN}"}},
        {"type": "image", "data": TOKEN, "mimeType": "image/png"},
    ]


async def test_a_prompt_without_secrets_is_forwarded_with_its_bytes(chain):
    agent = FakeAgent(turns=[["ok"]])
    async with chain(Redact(), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        raw = f'{{ "sessionId":"{session}","prompt":[{{"type":"text","text":"a\\u0062 1e400"}}]}}'
        await client.request("session/prompt", raw.encode())

    assert bytes(agent.transcript.of("session/prompt", "request")[0].raw) == raw.encode()


async def test_a_secret_in_the_middle_of_chunks_does_not_reach_the_client(chain):
    client, _, answer = await converse(chain, "It is ", TOKEN[:3], TOKEN[3:30], TOKEN[30:], ", ok")

    assert said(client) == ["It is ", f"{SHOWN}, ok"]
    assert answer == {"stopReason": "end_turn"}


async def test_withheld_text_is_shown_before_the_turn_ends(chain):
    client, _, _ = await converse(chain, f"It is {TOKEN}")
    assert said(client) == ["It is ", SHOWN]

    client, _, _ = await converse(chain, "It is g")
    assert said(client) == ["It is ", "g"]


async def test_an_update_about_something_else_does_not_let_a_secret_through(chain):
    usage = {"sessionUpdate": "usage_update", "used": 1, "size": 2}
    client, _, _ = await converse(chain, TOKEN[:9], usage, COMMANDS, TOKEN[9:], " ok")

    assert said(client) == ["usage_update", "available_commands_update", f"{SHOWN} ok"]


async def test_sessions_do_not_mix(chain):
    agent = FakeAgent()
    async with chain(Redact(), agent) as client:
        await client.initialize()
        one, two = [await client.new_session("/work") for _ in range(2)]
        agent.turns.append([lambda _: half(agent, one, two)])
        await client.prompt(one, "hi")
        assert client.transcript.text(one) == f"{SHOWN} "
        assert client.transcript.text(two) == "x "


async def half(agent, one, two):
    for session, text in [(one, TOKEN[:9]), (two, "x "), (one, TOKEN[9:] + " ")]:
        agent.say(session, text)


async def test_tool_calls_are_redacted_everywhere_but_in_their_ids(chain):
    update = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": TOKEN,
        "rawInput": {"command": f"curl -H {TOKEN}"},
        "content": [{"type": "diff", "path": "/x", "oldText": None, "newText": TOKEN}],
    }
    client, _, _ = await converse(chain, update)

    assert client.transcript.updates() == [
        {
            **update,
            "rawInput": {"command": f"curl -H {SHOWN}"},
            "content": [{"type": "diff", "path": "/x", "oldText": None, "newText": SHOWN}],
        }
    ]


async def test_files_are_read_without_secrets_and_written_with_them(chain):
    files = {"/work/.env": f"A=1\nKEY={TOKEN}\n"}

    async def edit(session):
        where = {"sessionId": session, "path": "/work/.env"}
        content = (await agent.endpoint.request("fs/read_text_file", where))["content"]
        seen.append(content)
        where["content"] = content.replace("A=1", "A=2")
        await agent.endpoint.request("fs/write_text_file", where)

    seen, agent = [], FakeAgent(turns=[["g", edit]])
    async with chain(Redact(), agent) as client:
        client.handlers["fs/read_text_file"] = lambda p: {"content": files[p["path"]]}
        client.handlers["fs/write_text_file"] = lambda p: files.update({p["path"]: p["content"]})
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "edit")
        client.transcript.check_order("session/update agent_message_chunk", "fs/read_text_file?")

    assert seen == [f"A=1\nKEY={SHOWN}\n"]
    assert files == {"/work/.env": f"A=2\nKEY={TOKEN}\n"}


async def test_terminal_output_is_redacted_but_commands_get_no_secrets(chain):
    async def look(session):
        started = {"sessionId": session, "command": f"echo {SHOWN}"}
        await agent.endpoint.request("terminal/create", started)
        where = {"sessionId": session, "terminalId": "t1"}
        outputs.append(await agent.endpoint.request("terminal/output", where))

    outputs, agent = [], FakeAgent(turns=[[look]])
    async with chain(Redact(), agent) as client:
        commands = []
        client.handlers["terminal/create"] = lambda p: commands.append(p) or {"terminalId": "t1"}
        client.handlers["terminal/output"] = lambda p: {"output": TOKEN, "truncated": False}
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, f"use {TOKEN}")

    assert outputs == [{"output": SHOWN, "truncated": False}]
    assert commands == [{"sessionId": session, "command": f"echo {SHOWN}"}]


async def test_permission_requests_are_redacted_and_follow_withheld_text(chain):
    async def ask(session):
        call = {"toolCallId": "c1", "rawInput": {"command": TOKEN}}
        params = {"sessionId": session, "toolCall": call, "options": [{"optionId": "a"}]}
        await agent.endpoint.request("session/request_permission", params)

    agent = FakeAgent(turns=[["g", ask]])
    async with chain(Redact(), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "hi")

        client.transcript.check_order(
            "session/update agent_message_chunk", "session/request_permission?"
        )
        asked = client.transcript.of("session/request_permission", "request")[0]
        assert asked.params["toolCall"]["rawInput"] == {"command": SHOWN}


async def test_errors_are_redacted_and_follow_withheld_text(chain):
    agent = FakeAgent(turns=[["oh g", RequestError(-32603, f"bad {TOKEN}", {"key": TOKEN})]])
    async with chain(Redact(), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        with pytest.raises(RequestError) as caught:
            await client.prompt(session, "hi")
        assert said(client) == ["oh ", "g"]

    assert (caught.value.message, caught.value.data) == (f"bad {SHOWN}", {"key": SHOWN})


async def test_values_of_the_environment_are_secrets(chain, monkeypatch):
    monkeypatch.setenv("MY_PASSWORD", "correct horse")
    monkeypatch.setenv("MY_NAME", "battery staple")
    monkeypatch.setenv("SHORT_TOKEN", "battery")
    client, _, _ = await converse(chain, "correct ", "horse battery staple")

    assert said(client) == ["[redacted:MY_PASSWORD:1] battery staple"]


async def test_patterns_are_added_and_built_in_ones_chosen(chain):
    proxy = Redact(builtin=["jwt"], patterns={"ticket": r"TICKET-\d+"})
    client, _, _ = await converse(chain, f"TICKET-1, {TOKEN}.", proxy=proxy)

    assert said(client) == [f"[redacted:ticket:1], {TOKEN}."]


async def test_loaded_history_is_redacted_before_the_session_is_open(chain):
    def load(params):
        agent.update(params["sessionId"], chunk(f"my key: {TOKEN}", "user_message_chunk"))
        return {}

    agent = FakeAgent(handlers={"session/load": load})
    async with chain(Redact(), agent) as client:
        await client.initialize()
        await client.request("session/load", {"sessionId": "s", "cwd": "/", "mcpServers": []})

        assert said(client) == ["my key: ", SHOWN]
        assert client.transcript.labels[-1] == "answer to session/load"


async def test_a_secret_beyond_ascii_in_terminal_bytes_is_redacted(chain, monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", "pässwörd-geheim")
    data = "x pässwörd-geheim\n".encode()

    def output(data):
        encoded = base64.b64encode(data).decode()
        return {"sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": encoded}

    whole = {
        "sessionUpdate": "terminal_update",
        "terminalId": "t",
        "output": {"data": base64.b64encode(data).decode()},
    }
    client, _, _ = await converse(chain, output(data[:4]), output(data[4:]), whole, version=2)

    *pieces, last = shown_in_version_2(client)
    shown = b"".join(base64.b64decode(each["data"]) for each in pieces)
    assert shown == base64.b64decode(last["output"]["data"]) == b"x [redacted:DB_PASSWORD:1]\n"


async def test_pieces_with_odd_ids_or_without_base64_pass_without_secrets(chain):
    odd = {"sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": f"é {TOKEN}"}
    client, _, _ = await converse(
        chain, chunk(TOKEN[:9], messageId=[1]), chunk(TOKEN[9:], messageId=[1]), odd
    )

    assert client.transcript.updates() == [
        chunk(SHOWN, messageId=[1]),
        {**odd, "data": f"é {SHOWN}"},
    ]


REQUESTS = {
    "session/list": {},
    "session/options": {"cwd": "/"},
    "session/new": {"cwd": "/", "mcpServers": []},
    "session/fork": {"sessionId": "s", "cwd": "/", "mcpServers": []},
    "session/load": {"sessionId": "s", "cwd": "/", "mcpServers": []},
    "session/resume": {"sessionId": "s", "cwd": "/", "mcpServers": []},
    "session/close": {"sessionId": "s"},
    "session/delete": {"sessionId": "s"},
    "session/archive": {"sessionId": "s"},
    "session/unarchive": {"sessionId": "s"},
    "session/status": {"sessionId": "s"},
    "session/prompt": {"sessionId": "s", "prompt": []},
    "session/set_mode": {"sessionId": "s", "modeId": "m"},
    "session/set_title": {"sessionId": "s", "title": "t"},
    "session/set_config_option": {"sessionId": "s", "configId": "c", "value": "v"},
    "authenticate": {"methodId": "m"},
    "logout": {},
    "auth/login": {"methodId": "m"},
    "auth/logout": {},
    "auth/status": {},
    "providers/list": {},
    "providers/set": {"providerId": "p"},
    "providers/disable": {"providerId": "p"},
    "terminal/cancel": {"sessionId": "s", "terminalId": "t"},
    "tool_call/cancel": {"sessionId": "s", "toolCallId": "c"},
}


def test_all_requests_of_clients_are_tried():
    inside = {
        name
        for name, method in METHODS.items()
        if method.source == "client" and method.kind == "request" and not name.startswith("nes/")
    }
    assert inside - {"initialize"} == {*REQUESTS}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("method", REQUESTS)
async def test_results_are_redacted(chain, method, version):
    answers = [
        {"title": f"a {TOKEN}", "_meta": {"data": TOKEN, TOKEN: 1}, "sessionId": "s"},
        RequestError(-32000, f"no {TOKEN}", {"sessionId": TOKEN, "at": [TOKEN]}),
    ]

    def answer(params):
        if isinstance(answers[0], RequestError):
            raise answers[0]
        return answers.pop(0)

    async with chain(Redact(), FakeAgent(handlers={method: answer})) as client:
        await client.initialize(version=version)
        assert await client.request(method, REQUESTS[method]) == {
            "title": f"a {SHOWN}",
            "_meta": {"data": SHOWN, SHOWN: 1},
            "sessionId": "s",
        }
        with pytest.raises(RequestError) as caught:
            await client.request(method, REQUESTS[method])

    assert caught.value.code == -32000
    assert (caught.value.message, caught.value.data) == (
        f"no {SHOWN}",
        {"sessionId": SHOWN, "at": [SHOWN]},
    )


async def test_initialize_is_redacted(chain):
    def initialize(params):
        return {"protocolVersion": 1, "agentCapabilities": {}, "_meta": {"a": TOKEN}}

    async with chain(Redact(), FakeAgent(handlers={"initialize": initialize})) as client:
        assert (await client.initialize())["_meta"] == {"a": SHOWN}


@pytest.mark.parametrize("method", ["fs/read_text_file", "terminal/output", "terminal/create"])
async def test_errors_of_the_client_are_redacted(chain, method):
    async def ask(session):
        with pytest.raises(RequestError) as caught:
            await agent.endpoint.request(method, {"sessionId": session, "path": "/x"})
        errors.append((caught.value.message, caught.value.data))

    def fail(params):
        raise RequestError(-32603, f"no {TOKEN}", {"data": TOKEN})

    errors, agent = [], FakeAgent(turns=[[ask]])
    async with chain(Redact(), agent) as client:
        client.handlers[method] = fail
        await client.initialize()
        await client.prompt(await client.new_session("/"), "hi")

    assert errors == [(f"no {SHOWN}", {"data": SHOWN})]


@pytest.mark.parametrize(
    "odd",
    [
        {"_meta": {"data": TOKEN}},
        {"data": TOKEN},
        {"threadId": TOKEN},
        {"content": {"type": "text", "text": "hi", "_meta": {"blob": TOKEN}}},
        {"content": {"type": "text", "text": "hi", "annotations": {TOKEN: TOKEN}}},
        {"content": {"type": TOKEN, "text": "hi", "data": TOKEN}},
        {"content": {"type": "resource", "resource": {"uri": TOKEN, "text": TOKEN}}},
        {"content": {"type": "resource_link", "uri": f"x:{TOKEN}", "name": TOKEN}},
    ],
)
async def test_other_members_of_a_chunk_are_redacted(chain, odd):
    client, _, _ = await converse(chain, {**chunk("hi"), **odd})

    (update,) = client.transcript.updates()
    told = compact({**update, "content": {**update["content"], "type": ""}})
    assert TOKEN not in told
    assert "redacted" in json.dumps(update)


async def test_other_members_of_a_chunk_and_its_params_are_kept(chain):
    async def say(session):
        update = {**chunk("a g"), "_meta": {"n": 1}}
        params = {"sessionId": session, "update": update, "_meta": {"of": [TOKEN]}}
        agent.endpoint.notify("session/update", params)

    agent = FakeAgent(turns=[[say]])
    async with chain(Redact(), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/"), "hi")
        heard = [each.params for each in client.transcript.of("session/update")]

    assert [each["_meta"] for each in heard] == [{"of": [SHOWN]}] * 2
    assert [each["update"] for each in heard] == [
        {**chunk(text), "_meta": {"n": 1}} for text in ("a ", "g")
    ]


async def test_session_set_up_is_redacted_except_for_the_settings_of_servers(chain):
    servers = [{"name": "s", "command": "/x", "args": [], "env": [{"name": "T", "value": TOKEN}]}]
    prompt = {"mode": "append", "content": [{"type": "text", "text": TOKEN}]}
    agent = FakeAgent()
    async with chain(Redact(), agent) as client:
        await client.initialize()
        params = {"cwd": "/", "mcpServers": servers, "systemPrompt": prompt}
        await client.request("session/new", params)

    (heard,) = agent.transcript.of("session/new", "request")
    shown = {"mode": "append", "content": [{"type": "text", "text": SHOWN}]}
    assert heard.params == {**params, "systemPrompt": shown}


async def test_a_key_that_is_read_by_ranges_or_cut_off_does_not_reach_the_agent(chain):
    lines = base64.b64encode(random.Random(1).randbytes(480)).decode()
    lines = [lines[at : at + 64] for at in range(0, len(lines), 64)]

    async def read(session):
        where = {"sessionId": session, "path": "/id_rsa", "limit": 1}
        for line in range(1, len(lines) + 1):
            answers.append(
                await agent.endpoint.request("fs/read_text_file", {**where, "line": line})
            )
        where = {"sessionId": session, "terminalId": "t"}
        answers.append(await agent.endpoint.request("terminal/output", where))

    answers, agent = [], FakeAgent(turns=[[read]])
    async with chain(Redact(), agent) as client:
        output = "\n".join([lines[0][30:], *lines[1:], "-----END RSA PRIVATE KEY-----"])
        client.handlers["fs/read_text_file"] = lambda p: {"content": lines[p["line"] - 1] + "\n"}
        client.handlers["terminal/output"] = lambda p: {"output": output, "truncated": True}
        await client.initialize()
        await client.prompt(await client.new_session("/"), "look")

    told = json.dumps(answers)
    assert len(answers) == 11
    assert not [line for line in [*lines, lines[0][30:]] if line in told]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"builtin": ["jtw"]}, "no built-in pattern `jtw`, only private-key, "),
        ({"patterns": {"mine": "("}}, "`mine` is not a regular expression"),
        ({"patterns": {"mine": "x*"}}, "`mine` matches everywhere"),
        ({"shortest": 3}, "'shortest' must be > 3"),
        ({"hold": 0}, "'hold' must be > 0"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        Redact(**options)
