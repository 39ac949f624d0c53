"""Sessions of one principal, which agents keep beside those of others."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import trio_websocket
from support.raw_json import compact
from support.server_clients import (
    ask,
    initialize,
    new_session,
    prompt,
    request,
    serving,
    websocket,
)

from conductor.server.access import AccessPolicy, read_tokens

COMPONENTS = Path(__file__).parents[1] / "support" / "components"
AGENT = COMPONENTS / "durable_agent.py:KeepingAgent"
ANN, BOB = "a" * 32, "b" * 32
DELEGATING = pytest.mark.parametrize(
    "agent", [f"{COMPONENTS}/delegating_agent.py:DelegatingAgent"], ids=["delegating"]
)
ACCESS = AccessPolicy(tokens=read_tokens([f"ann:{ANN}", f"bob:{BOB}"]))


@pytest.fixture
def agent() -> str:
    return str(AGENT)


@pytest.fixture
def options() -> str:
    """Options of the agent, behind the others."""
    return ""


@pytest.fixture
async def connect(tmp_path: Path, agent: str, options: str) -> AsyncIterator[Any]:
    """Connects a principal to a server whose agents keep their sessions in one place."""
    kept = tmp_path / "kept"
    kept.mkdir()
    entry = f"{{use: {agent}, with: {{directory: {kept}, node: a{options}}}}}"
    chain, limits = f"version: 1\nagent: {entry}\n", {"sessions_each": 5}
    async with serving(tmp_path, chain=chain, access=ACCESS, limits=limits) as server:

        @asynccontextmanager
        async def connect(token: str) -> AsyncIterator[trio_websocket.WebSocketConnection]:
            async with websocket(server, ("authorization", f"Bearer {token}")) as socket:
                await ask(socket, initialize())
                yield socket

        yield connect


def naming(method: str, session: str) -> dict[str, Any]:
    return request(2, method, sessionId=session, cwd="/", mcpServers=[])


@pytest.mark.parametrize("method", ["load", "resume", "fork", "delete"])
async def test_a_session_of_another_principal_is_not_found(connect, method):
    async with connect(ANN) as ann:
        session = (await ask(ann, new_session(1)))["result"]["sessionId"]
    async with connect(BOB) as bob:
        answer = await ask(bob, naming(f"session/{method}", session))

    assert answer["error"] == {
        "code": -32002,
        "message": "Resource not found",
        "data": {"sessionId": session},
    }


async def test_a_session_is_loaded_by_its_principal_on_another_connection(connect):
    async with connect(ANN) as ann:
        session = (await ask(ann, new_session(1)))["result"]["sessionId"]
    async with connect(ANN) as ann:
        answer = await ask(ann, naming("session/load", session))

    assert "result" in answer


async def test_sessions_of_others_are_not_listed(connect):
    async with connect(ANN) as ann, connect(BOB) as bob:
        session = (await ask(ann, new_session(1)))["result"]["sessionId"]
        own = await ask(ann, request(2, "session/list"))
        others = await ask(bob, request(2, "session/list"))

    assert own["result"] == {"sessions": [{"sessionId": session, "cwd": "/"}]}
    assert others["result"] == {"sessions": []}


async def test_a_lone_surrogate_in_the_params_opens_no_session_of_another_principal(connect):
    """msgspec refuses what it cannot decode; agents in JavaScript and Python do not."""
    async with connect(ANN) as ann:
        session = (await ask(ann, new_session(1)))["result"]["sessionId"]
    async with connect(BOB) as bob:
        answers = [
            await ask(bob, {**naming(method, session), "params": {**params, "_meta": "\ud83d"}})
            for method in ("session/load", "session/resume", "session/fork", "session/delete")
            for params in [naming(method, session)["params"]]
        ]
    async with connect(ANN) as ann:
        own = await ask(ann, request(2, "session/list"))

    assert [answer["error"]["code"] for answer in answers] == [-32002] * 4
    assert own["result"]["sessions"] == [{"sessionId": session, "cwd": "/"}]


@pytest.mark.parametrize(
    "params",
    ['{"sessionId":"mine","sessionId":"%s"}', '{"sessionId":["%s"]}', '["%s"]', '{"sessionId":7}'],
)
async def test_an_ambiguous_session_id_is_refused(connect, params):
    async with connect(ANN) as ann:
        session = (await ask(ann, new_session(1)))["result"]["sessionId"]
    async with connect(BOB) as bob:
        text = params.replace("%s", session)
        line = '{"jsonrpc":"2.0","id":2,"method":"session/load","params":' + text + "}"
        await bob.send_message(line)
        answer = json.loads(await bob.get_message())

    assert answer["error"]["code"] == -32602
    assert "ambiguous session id" in answer["error"]["message"]


@pytest.mark.parametrize("spelling", ["./%s", "x/../%s", "%s/", "{directory}/%s", "%s\0", "%s\n"])
async def test_a_session_id_that_is_a_path_to_a_session_of_another_principal(
    connect, tmp_path, spelling
):
    """Agents join the id to a directory."""
    async with connect(ANN) as ann:
        session = (await ask(ann, new_session(1)))["result"]["sessionId"]
    path = spelling.replace("{directory}", str(tmp_path / "kept")) % session
    async with connect(BOB) as bob:
        answers = [
            await ask(bob, naming(f"session/{method}", path))
            for method in ("load", "resume", "fork", "delete", "prompt")
        ]
    async with connect(ANN) as ann:
        own = await ask(ann, request(2, "session/list"))

    assert [answer["error"]["code"] for answer in answers] == [-32002] * 5
    assert own["result"]["sessions"] == [{"sessionId": session, "cwd": "/"}]


@pytest.mark.parametrize(
    ("method", "meta"),
    [
        ("session/new", {"claudeCode": {"options": {"resume": "%s"}}}),
        ("session/new", {"claudeCode": {"options": {"extraArgs": {"resume": "%s"}}}}),
        ("session/load", {"session_id": "%s"}),
        ("session/prompt", {"session_id": "%s"}),
        ("session/prompt", {"sessionId": "./%s"}),
        ("session/cancel_all", {"session_id": "%s"}),
        ("_vendor/ask", {"of": [{"parentSessionId": "%s"}]}),
    ],
)
async def test_a_session_of_another_principal_in_meta_is_not_found(connect, method, meta):
    async with connect(ANN) as ann:
        session = (await ask(ann, new_session(1)))["result"]["sessionId"]
    async with connect(BOB) as bob:
        own = (await ask(bob, new_session(1)))["result"]["sessionId"]
        message = request(2, method, sessionId=own, cwd="/", mcpServers=[])
        text = compact(meta)
        if method == "session/new":
            del message["params"]["sessionId"]
        message["params"]["_meta"] = json.loads(text.replace("%s", session))
        refused = await ask(bob, message)
        message["params"]["_meta"] = json.loads(text.replace("./", "").replace("%s", own))
        allowed = await ask(bob, message)

    assert refused["error"]["code"] == -32002
    assert allowed.get("error", {}).get("code") != -32002


async def test_the_latest_session_is_not_continued(connect):
    """It may be another principal's."""
    async with connect(BOB) as bob:
        message = new_session(1)
        message["params"]["_meta"] = {"claudeCode": {"options": {"continue": True}}}
        answer = await ask(bob, message)

    assert answer["error"]["code"] == -32602


SDK_AGENT = """
import asyncio

import acp

class Agent:
    def on_connect(self, conn): ...

    async def initialize(self, protocol_version, **_):
        return acp.InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd, mcp_servers=None, **_):
        return acp.NewSessionResponse(session_id=cwd)

    async def prompt(self, prompt, session_id, **_):
        return acp.PromptResponse(stop_reason="end_turn", field_meta={"prompted": session_id})

asyncio.run(acp.run_agent(Agent()))
"""


@pytest.mark.slow
async def test_meta_gives_an_agent_on_the_python_sdk_no_session_of_another_principal(tmp_path):
    """The SDK lets members of `_meta` replace the arguments of the agent's methods."""
    (tmp_path / "agent.py").write_text(SDK_AGENT)
    chain = f"version: 1\nagent: {{run: [{sys.executable}, {tmp_path / 'agent.py'}]}}\n"
    async with serving(tmp_path, chain=chain, access=ACCESS) as server:
        prompted = {}
        for token, cwd in [(ANN, "/ann"), (BOB, "/bob")]:
            async with websocket(server, ("authorization", f"Bearer {token}")) as socket:
                await ask(socket, initialize())
                await ask(socket, request(1, "session/new", cwd=cwd, mcpServers=[]))
                for member, named in product(("_meta", "field_meta"), ("/ann", "/bob")):
                    meta = {member: {"session_id": named}}
                    prompt = request(2, "session/prompt", sessionId=cwd, prompt=[], **meta)
                    answer = await ask(socket, prompt)
                    ran = answer.get("result", {}).get("_meta", {}).get("prompted")
                    prompted[cwd, member, named] = ran

    assert "/ann" not in [ran for (cwd, *_), ran in prompted.items() if cwd == "/bob"]
    for member in ("_meta", "field_meta"):
        assert prompted["/ann", member, "/ann"] == "/ann"
        assert prompted["/bob", member, "/bob"] == "/bob"


async def test_a_client_at_its_quota_is_refused_before_the_agent_is_asked(connect, tmp_path):
    async with connect(ANN) as ann, connect(BOB) as bob:
        kept = [(await ask(ann, new_session(id)))["result"]["sessionId"] for id in range(1, 6)]
        refused = await ask(ann, new_session(6))
        not_forgotten = [await ask(bob, naming("session/load", session)) for session in kept]
        others = await ask(bob, new_session(9))
        await ask(ann, naming("session/load", kept[0]))

    assert refused["error"] == {
        "code": -32600,
        "message": "Too many sessions of one client; delete some (session/delete)",
        "data": {"limit": 5, "option": "--max-sessions-each"},
    }
    assert {answer["error"]["code"] for answer in not_forgotten} == {-32002}
    assert "result" in others
    assert len(list((tmp_path / "kept").iterdir())) == 6


async def test_a_failed_load_records_no_principal(connect, tmp_path):
    (tmp_path / "kept" / "old").touch()
    async with connect(BOB) as bob, connect(ANN) as ann:
        missing = await ask(bob, naming("session/load", "no such"))
        first = await ask(ann, naming("session/load", "old"))
        second = await ask(bob, naming("session/load", "old"))
        (tmp_path / "kept" / "no such").touch()
        found = await ask(ann, naming("session/load", "no such"))

    assert "error" in missing
    assert "result" in first
    assert second["error"]["code"] == -32002
    assert "result" in found


async def delegate(socket: trio_websocket.WebSocketConnection) -> tuple[str, str]:
    """Let the agent give work to a subagent, and allow it; returns both sessions."""
    session = (await ask(socket, new_session(1)))["result"]["sessionId"]
    await socket.send_message(compact(prompt(2, session, "go")))
    while (got := json.loads(await socket.get_message())).get("id") != 2 or "method" in got:
        if got.get("method") == "session/request_permission":
            outcome = {"outcome": "selected", "optionId": "yes"}
            answer = {"jsonrpc": "2.0", "id": got["id"], "result": {"outcome": outcome}}
            await socket.send_message(compact(answer))
    assert "result" in got
    return session, f"{session}.child"


@DELEGATING
@pytest.mark.parametrize("method", ["load", "resume", "fork", "delete", "prompt"])
async def test_the_session_of_a_subagent_belongs_to_the_principal_of_its_parent(connect, method):
    async with connect(ANN) as ann, connect(BOB) as bob:
        _, child = await delegate(ann)
        refused = await ask(bob, naming(f"session/{method}", child))
        listed = await ask(bob, request(3, "session/list"))
        own = await ask(ann, naming("session/load", child))

    assert refused["error"]["code"] == -32002
    assert listed["result"] == {"sessions": []}
    assert "result" in own


@DELEGATING
async def test_sessions_of_subagents_are_forgotten_with_their_parent(connect):
    """So that they do not use up the quota, which they count for."""
    async with connect(ANN) as ann, connect(BOB) as bob:
        for _ in range(4):  # each time two sessions, of at most five
            session, child = await delegate(ann)
            await ask(ann, naming("session/delete", session))
        found = await ask(bob, naming("session/load", child))

    assert "result" in found


@DELEGATING
@pytest.mark.parametrize("is_loaded", [False, True], ids=["opened", "loaded"])
async def test_what_the_client_opens_is_not_forgotten_with_a_session_that_the_agent_puts_it_below(
    connect, is_loaded
):
    """It would belong to no principal, and another could load it."""
    async with connect(ANN) as ann, connect(BOB) as bob:
        if is_loaded:
            other, own = await delegate(ann)
            assert "result" in await ask(ann, naming("session/load", own))
        else:
            other, own = [(await ask(ann, new_session(1)))["result"]["sessionId"] for _ in range(2)]
        await let_name(ann, other, "child", own)
        await ask(ann, naming("session/delete", other))
        refused = await ask(bob, naming("session/load", own))
        found = await ask(ann, naming("session/load", own))

    assert refused["error"]["code"] == -32002
    assert "result" in found


@DELEGATING
async def test_a_subagent_beyond_the_quota_is_refused_what_it_asks_for(connect):
    async with connect(ANN) as ann:
        for id in range(10, 14):
            await ask(ann, new_session(id))
        session = (await ask(ann, new_session(1)))["result"]["sessionId"]
        answer = await ask(ann, prompt(2, session, "go"))

    assert "Too many sessions" in answer["error"]["message"]


SILENT = pytest.mark.parametrize("options", [", announces: false"], ids=["silent"])


@SILENT
@DELEGATING
@pytest.mark.parametrize("method", ["load", "resume", "prompt", "delete"])
async def test_a_session_that_only_updates_name_belongs_to_the_principal_of_its_agent(
    connect, method
):
    async with connect(ANN) as ann, connect(BOB) as bob:
        _, child = await delegate(ann)
        refused = await ask(bob, naming(f"session/{method}", child))
        listed = await ask(bob, request(3, "session/list"))
        own = await ask(ann, naming("session/load", child))

    assert refused["error"]["code"] == -32002
    assert listed["result"] == {"sessions": []}
    assert "result" in own


@SILENT
@DELEGATING
async def test_updates_of_unannounced_sessions_beyond_the_quota_are_dropped(connect):
    async with connect(ANN) as ann:
        for id in range(10, 14):
            await ask(ann, new_session(id))
        session = (await ask(ann, new_session(1)))["result"]["sessionId"]
        await ann.send_message(compact(prompt(2, session, "go")))
        updates = []
        while (got := json.loads(await ann.get_message())).get("id") != 2:
            updates.append(got["params"]["sessionId"])

    assert updates == [session]


async def let_name(
    socket: trio_websocket.WebSocketConnection, session: str, how: str, other: str
) -> None:
    """Let the agent of this client name another session; what it asks for is refused."""
    await socket.send_message(compact(prompt(2, session, f"name {how} {other}")))
    while (got := json.loads(await socket.get_message())).get("id") != 2 or "method" in got:
        if "id" in got:
            answer = {"jsonrpc": "2.0", "id": got["id"]}
            refused = {"error": {"code": -32601, "message": "no"}}
            asked = got["method"] == "session/request_permission"
            outcome = {"result": {"outcome": {"outcome": "cancelled"}}}
            await socket.send_message(compact(answer | (outcome if asked else refused)))


@pytest.mark.parametrize("how", ["update", "child", "ask", "read"])
async def test_an_agent_that_names_a_session_of_another_principal_gets_it_for_none(connect, how):
    async with connect(ANN) as ann, connect(BOB) as bob:
        session = (await ask(ann, new_session(1)))["result"]["sessionId"]
        own = (await ask(bob, new_session(1)))["result"]["sessionId"]
        await let_name(bob, own, how, session)
        refused = await ask(bob, naming("session/load", session))
        found = await ask(ann, naming("session/load", session))

    assert refused["error"]["code"] == -32002
    assert "result" in found


@pytest.mark.parametrize("how", ["update", "child", "ask", "read"])
async def test_a_session_that_was_named_before_it_was_made_belongs_to_its_principal(connect, how):
    async with connect(ANN) as ann, connect(BOB) as bob:
        own = (await ask(bob, new_session(1)))["result"]["sessionId"]
        await let_name(bob, own, how, "next")
        held = await ask(ann, naming("session/load", "next"))
        made = await ask(
            ann, request(1, "session/new", cwd="/", mcpServers=[], _meta={"id": "next"})
        )
        refused = await ask(bob, naming("session/load", "next"))
        found = await ask(ann, naming("session/load", "next"))

    assert held["error"]["code"] == -32002
    assert made["result"] == {"sessionId": "next"}
    assert refused["error"]["code"] == -32002
    assert "result" in found


@DELEGATING
async def test_many_levels_of_subagents_are_forgotten_with_their_parent(connect):
    async with connect(ANN) as ann:
        top = session = (await ask(ann, new_session(1)))["result"]["sessionId"]
        for number in range(3):
            await let_name(ann, session, "child", child := f"{top}.{number}")
            session = child
        await ask(ann, naming("session/delete", top))
        made = [await ask(ann, new_session(number)) for number in range(5)]

    assert all("result" in each for each in made)
