"""Real commands for an agent if the client has no terminals."""

from __future__ import annotations

import os

import pytest
import trio

from conductor.errors import RequestError
from conductor.testing import FakeAgent
from proxies.local_terminals import LocalTerminals
from proxies.permissions import Permissions
from proxies.permissions.rules import Rule
from proxies.v1_v2 import V1V2

PATIENCE = 30
NAMES = ("output", "wait_for_exit", "kill", "release")


async def open_session(client, directory, capabilities=None):
    await client.initialize(capabilities=capabilities or {})
    return await client.new_session(str(directory))


def announced(agent):
    return agent.transcript.of("initialize", "request")[0].params["clientCapabilities"]


async def create(agent, session, command, **params):
    """The id of a terminal, or the error."""
    try:
        result = await agent.endpoint.request(
            "terminal/create", {"sessionId": session, "command": command, **params}
        )
    except RequestError as exc:
        return f"{exc.code} {exc.message}"
    return result["terminalId"]


async def ask(agent, name, session, terminal):
    params = {"sessionId": session, "terminalId": terminal}
    with trio.fail_after(PATIENCE):
        try:
            return await agent.endpoint.request(f"terminal/{name}", params)
        except RequestError as exc:
            return f"{exc.code} {exc.message}"


async def finished(agent, session, command, **params):
    """The output and the exit of a command."""
    terminal = await create(agent, session, command, **params)
    exit = await ask(agent, "wait_for_exit", session, terminal)
    output = await ask(agent, "output", session, terminal)
    assert output["exitStatus"] == exit
    assert await ask(agent, "release", session, terminal) == {}
    return output["output"], exit["exitCode"]


@pytest.fixture
def alive(tmp_path):
    """A path that a process holds open while it runs, and a function that waits for its end."""
    path = str(tmp_path / "alive")
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    async def ended():
        with trio.fail_after(PATIENCE):
            while os.read(reader, 1) != b"":
                await trio.lowlevel.wait_readable(reader)

    yield path, ended
    os.close(reader)


def sleeper(path):
    """A command with a child in the background, which both hold `path` open."""
    return f"exec 3>'{path}'; printf x >&3; sleep 3600 & echo ready; wait"


async def until_ready(agent, session, terminal):
    with trio.fail_after(PATIENCE):
        while "ready" not in (await ask(agent, "output", session, terminal))["output"]:
            await trio.lowlevel.checkpoint()


async def test_a_command_runs_in_the_directory_of_the_session(chain, project):
    agent = FakeAgent()
    async with chain(LocalTerminals(), agent) as client:
        session = await open_session(client, project, {"fs": {"readTextFile": True}})

        assert announced(agent) == {"fs": {"readTextFile": True}, "terminal": True}
        # Without arguments it is a line for the shell, with arguments a program.
        assert await finished(agent, session, "pwd; cat | wc -c; exit 3") == (f"{project}\n0\n", 3)
        assert await finished(agent, session, "echo", args=["a  b", "$HOME"]) == ("a  b $HOME\n", 0)
        variables = [{"name": "NAME", "value": "ann"}]
        assert await finished(agent, session, "echo $NAME >&2", env=variables) == ("ann\n", 0)
        (project / "sub").mkdir()
        inside = await finished(agent, session, "pwd", cwd=f"{project}/sub")
        assert inside == (f"{project}/sub\n", 0)

    assert [each.label for each in client.transcript if "terminal" in each.label] == []


async def test_a_client_keeps_its_terminals(chain, project):
    agent = FakeAgent()
    async with chain(LocalTerminals(), agent) as client:
        client.handlers["terminal/create"] = lambda params: {"terminalId": "of the client"}
        for name in NAMES:
            client.handlers[f"terminal/{name}"] = lambda params: {"_meta": {"client": True}}
        session = await open_session(client, project, {"terminal": True})

        assert await create(agent, session, "pwd") == "of the client"
        for name in NAMES:
            answer = await ask(agent, name, session, "of the client")
            assert answer == {"_meta": {"client": True}}
        content = [{"type": "terminal", "terminalId": "of the client"}]
        update = {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "x", "content": content}
        agent.update(session, update)
        await client.transcript.wait("session/update tool_call")
    assert client.transcript.updates() == [update]


async def test_output_is_cut_to_the_limit_from_the_start(chain, project):
    agent = FakeAgent()
    async with chain(LocalTerminals(), agent) as client:
        session = await open_session(client, project)
        terminal = await create(agent, session, "printf 'one😀two'", outputByteLimit=6)
        await ask(agent, "wait_for_exit", session, terminal)
        found = await ask(agent, "output", session, terminal)

    exit = {"exitCode": 0, "signal": None}
    assert found == {"output": "two", "truncated": True, "exitStatus": exit}


async def test_a_killed_command_keeps_its_terminal_and_its_children_end(chain, project, alive):
    path, ended = alive
    agent = FakeAgent()
    async with chain(LocalTerminals(), agent) as client:
        session = await open_session(client, project)
        terminal = await create(agent, session, sleeper(path))
        await until_ready(agent, session, terminal)
        assert await ask(agent, "kill", session, terminal) == {}
        await ended()

        exit = {"exitCode": None, "signal": "SIGTERM"}
        assert await ask(agent, "wait_for_exit", session, terminal) == exit
        output = {"output": "ready\n", "truncated": False, "exitStatus": exit}
        assert await ask(agent, "output", session, terminal) == output
        assert await ask(agent, "kill", session, terminal) == {}


async def test_a_command_that_ignores_the_first_signal_is_killed(chain, project, virtual_clock):
    agent = FakeAgent()
    async with chain(LocalTerminals(), agent) as client:
        session = await open_session(client, project)
        script = "trap '' TERM; echo ready; while :; do sleep 3600; done"
        terminal = await create(agent, session, script)
        params = {"sessionId": session, "terminalId": terminal}
        while "ready" not in (await agent.endpoint.request("terminal/output", params))["output"]:
            pass
        await agent.endpoint.request("terminal/kill", params)
        exit = await agent.endpoint.request("terminal/wait_for_exit", params)
    assert exit == {"exitCode": None, "signal": "SIGKILL"}


@pytest.mark.parametrize("end", ["release", "session", "chain"])
async def test_commands_end_with_their_terminal_the_session_and_the_chain(
    chain, project, alive, end
):
    path, ended = alive
    agent = FakeAgent(handlers={"session/close": lambda params: {}})
    async with chain(LocalTerminals(), agent) as client:
        session = await open_session(client, project)
        agent.update(session, {"sessionUpdate": "subagent_update", "sessionId": "child"})
        terminal = await create(agent, "child", sleeper(path))
        await until_ready(agent, "child", terminal)
        if end == "release":
            assert await ask(agent, "release", "child", terminal) == {}
            await ended()
            gone = f"-32002 local_terminals: the session has no terminal `{terminal}`"
            assert [await ask(agent, name, "child", terminal) for name in NAMES] == [gone] * 4
        if end == "session":
            await client.request("session/close", {"sessionId": session})
            await ended()
    await ended()


@pytest.mark.parametrize("before", [(), (V1V2(agent_version=1),)], ids=["v1", "v2"])
async def test_commands_end_with_a_session_that_the_agent_cannot_close(
    chain, project, alive, before
):
    path, ended = alive
    agent = FakeAgent(capabilities={"sessionCapabilities": {"list": {}}})
    async with chain(*before, LocalTerminals(), agent) as client:
        await client.initialize(version=1 + len(before), capabilities={})
        session, other = [await client.new_session(str(project)) for _ in range(2)]
        terminal = await create(agent, session, sleeper(path))
        kept = await create(agent, other, "true")
        await until_ready(agent, session, terminal)
        assert await client.request("session/close", {"sessionId": session}) == {}
        await ended()
        assert (await ask(agent, "output", session, terminal)).startswith("-32002")
        assert (await ask(agent, "wait_for_exit", other, kept))["exitCode"] == 0

    assert [each.params for each in agent.transcript.of("session/cancel")] == [
        {"sessionId": session}
    ]
    assert agent.transcript.of("session/close") == []


async def test_a_terminal_belongs_to_its_session(chain, project):
    agent = FakeAgent()
    async with chain(LocalTerminals(), agent) as client:
        session = await open_session(client, project)
        other = await client.new_session(str(project))
        terminal = await create(agent, session, "true")

        assert (await ask(agent, "output", other, terminal)).startswith("-32002")
        assert (await create(agent, "unknown", "true")).startswith("-32602")


async def test_the_number_of_terminals_is_bounded(chain, project):
    agent = FakeAgent()
    async with chain(LocalTerminals(max_terminals=2), agent) as client:
        session = await open_session(client, project)
        first = await create(agent, session, "true")
        await create(agent, session, "true")
        refused = await create(agent, session, "true")
        await ask(agent, "release", session, first)

        assert refused == "-32603 local_terminals: 2 terminals are open; release one first"
        assert (await create(agent, session, "true")).startswith("conductor-terminal-")


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"command": "no-such-program", "args": ["x"]}, "command not found|no-such-program"),
        ({"command": ""}, "`command` is not a text"),
        ({"args": [1]}, "`args` is not a list of texts"),
        ({"env": [{"name": "A"}]}, "`env` is not a list of variables"),
        ({"env": [{"name": "A=B", "value": "x"}]}, "illegal environment variable name"),
        ({"args": ["a\0b"]}, "null byte"),
        ({"cwd": "/"}, "`/` is not in the directories of the session"),
        ({"cwd": "sub"}, "`sub` is not an absolute path"),
        ({"outputByteLimit": -1}, "`outputByteLimit` is not a number of bytes"),
    ],
)
async def test_what_cannot_run_is_an_error_that_names_the_proxy(chain, project, params, problem):
    agent = FakeAgent()
    async with chain(LocalTerminals(), agent) as client:
        session = await open_session(client, project)
        with pytest.raises(RequestError, match=f"local_terminals: .*({problem})"):
            await agent.endpoint.request(
                "terminal/create", {"sessionId": session, "command": "true", **params}
            )
        assert await finished(agent, session, "echo ok") == ("ok\n", 0)


async def test_rules_of_permissions_before_it_answer_its_questions(chain, project):
    rule = Rule(action="allow_once", argv=["git status", "echo"])
    agent = FakeAgent()
    async with chain(
        Permissions(rules=[rule], default="deny"), LocalTerminals(ask=True), agent
    ) as client:
        session = await open_session(client, project)
        assert await finished(agent, session, "echo hello") == ("hello\n", 0)
        assert await finished(agent, session, "echo", args=["hello"]) == ("hello\n", 0)
        refused = await create(agent, session, "rm", args=["-r", "x y"])

    assert refused == "-32600 local_terminals: the user refuses to run `rm -r 'x y'`"
    assert client.transcript.of("session/request_permission") == []


async def test_its_question_shows_the_variables_of_a_command(chain, project):
    agent = FakeAgent()
    async with chain(LocalTerminals(ask=True), agent) as client:
        session = await open_session(client, project)
        env = [{"name": "GREETING", "value": "hello"}]
        assert await finished(agent, session, "echo $GREETING", env=env) == ("hello\n", 0)
        assert await finished(agent, session, "echo", args=["x"], env=[]) == ("x\n", 0)

    given = [
        each.params["toolCall"]["rawInput"]
        for each in client.transcript.of("session/request_permission", "request")
    ]
    with_variables = {"command": "echo $GREETING", "args": [], "env": {"GREETING": "hello"}}
    without = {"command": "echo", "args": ["x"]}
    assert given == [{**each, "cwd": str(project)} for each in (with_variables, without)]


async def test_a_tool_call_shows_the_terminal_as_text(chain, project):
    agent = FakeAgent()
    async with chain(LocalTerminals(), agent) as client:
        session = await open_session(client, project)
        os.mkfifo(project / "fifo")
        terminal = await create(agent, session, "cat fifo; exit 1")
        content = [
            {"type": "content", "content": {"type": "text", "text": "Tests"}},
            {"type": "terminal", "terminalId": terminal, "_meta": {"a": 1}},
        ]
        call = {"toolCallId": "1", "title": "x", "content": content}
        agent.update(session, {"sessionUpdate": "tool_call", **call})
        await client.transcript.wait("session/update tool_call")
        await trio.to_thread.run_sync((project / "fifo").write_text, "hello\n")
        await ask(agent, "wait_for_exit", session, terminal)
        await client.transcript.wait("session/update tool_call_update")
        await ask(agent, "release", session, terminal)
        agent.update(session, {"sessionUpdate": "tool_call_update", **call})
        await client.transcript.wait("session/update tool_call_update", count=2)
        await agent.ask(session, call)

    (question,) = client.transcript.of("session/request_permission", "request")
    shown = [
        each["content"] for each in [*client.transcript.updates(), question.params["toolCall"]]
    ]
    assert [each[0] for each in shown] == [content[0]] * 4
    command = "$ cat fifo; exit 1"
    assert shown[0][1]["content"]["text"] == f"```console\n{command}\n```"
    for each in shown:
        assert (each[1]["type"], each[1]["_meta"]) == ("content", {"a": 1})
    for each in shown[1:]:
        assert each[1]["content"]["text"] == f"```console\n{command}\nhello\n[exit code 1]\n```"


async def test_an_agent_of_version_1_gets_terminals_with_a_client_of_version_2(chain, project):
    agent = FakeAgent()
    async with chain(V1V2(agent_version=1), LocalTerminals(), agent) as client:
        await client.initialize(version=2)
        session = await client.new_session(str(project))
        assert announced(agent)["terminal"] is True
        terminal = await create(agent, session, "cat a.txt")
        content = [{"type": "terminal", "terminalId": terminal}]
        call = {"toolCallId": "1", "title": "x", "content": content}
        agent.update(session, {"sessionUpdate": "tool_call", **call})
        await ask(agent, "wait_for_exit", session, terminal)
        agent.update(session, {"sessionUpdate": "tool_call_update", **call})
        await client.transcript.wait(lambda heard: "[exit code 0]" in str(heard.params))

    shown = client.transcript.updates()
    assert {each["sessionUpdate"] for each in shown} == {"tool_call_update"}
    text = "```console\n$ cat a.txt\none\n[exit code 0]\n```"
    assert shown[-1]["content"] == [{"type": "content", "content": {"type": "text", "text": text}}]
