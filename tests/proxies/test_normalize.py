from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
import trio

from conductor.proxy import RequestError
from conductor.testing import FakeAgent, open_chain
from proxies.normalize import Normalize

NEW = {"cwd": "/work", "mcpServers": []}
ENDED = {"stopReason": "end_turn"}


def usage(used):
    return {"sessionUpdate": "usage_update", "used": used, "size": 9}


def named(name, **more):
    answer = {"protocolVersion": 1, "agentInfo": {"name": name, "version": "1"}, **more}
    return {"initialize": lambda params: answer}


async def think(session):
    await trio.sleep(10)


# -- early_updates ---------------------------------------------------------------------------------


async def test_updates_of_a_session_wait_until_the_client_knows_it(chain):
    def open_session(params):
        agent.update("s1", usage(1))
        agent.update("s1", usage(2))
        nursery.start_soon(later)
        return {"sessionId": "s1"}

    async def later():
        agent.update("s1", usage(3))

    agent = FakeAgent(handlers={"session/new": open_session})
    async with chain(Normalize(), agent) as client, trio.open_nursery() as nursery:
        await client.initialize()
        await client.new_session("/work")
        await client.transcript.wait("session/update usage_update", count=3)

        assert [update["used"] for update in client.transcript.updates()] == [1, 2, 3]
        client.transcript.check_order("answer to session/new", "session/update usage_update")
        agent.update("s1", usage(4))
        await client.transcript.wait("session/update usage_update", count=4)


async def test_updates_of_sessions_that_the_client_knows_do_not_wait(chain):
    async def open_second(params):
        agent.update("s1", usage(1))
        await trio.sleep(10)
        return {"sessionId": "s2"}

    answers = [lambda params: {"sessionId": "s1"}, open_second]
    agent = FakeAgent(handlers={"session/new": lambda params: answers.pop(0)(params)})
    async with chain(Normalize(), agent) as client, trio.open_nursery() as nursery:
        await client.initialize()
        await client.new_session("/work")
        nursery.start_soon(client.new_session, "/work")
        await client.transcript.wait("session/update usage_update")

        assert client.transcript.labels.count("answer to session/new") == 1
        nursery.cancel_scope.cancel()


async def test_the_history_of_a_loaded_session_does_not_wait(chain):
    def load_session(params):
        agent.update("s1", usage(1))
        return {}

    agent = FakeAgent(handlers={"session/load": load_session})
    async with chain(Normalize(), agent) as client:
        await client.initialize()
        await client.request("session/load", {**NEW, "sessionId": "s1"})

        client.transcript.check_order("session/update usage_update", "answer to session/load")


async def test_queued_updates_are_sent_when_the_session_fails_to_open(chain):
    def refuse(params):
        agent.update("other", usage(1))
        raise RequestError(-32603, "no")

    agent = FakeAgent(handlers={"session/new": refuse})
    async with chain(Normalize(), agent) as client:
        await client.initialize()
        with pytest.raises(RequestError):
            await client.new_session("/work")
        await client.transcript.wait("session/update usage_update")


# -- protocol versions -----------------------------------------------------------------------------


@pytest.mark.parametrize(("written", "read"), [("1", 1), ("1.0", 1), (1, 1), ("x", "x")])
async def test_an_agents_version_becomes_a_number(chain, written, read):
    agent = FakeAgent(handlers={"initialize": lambda params: {"protocolVersion": written}})
    async with chain(Normalize(), agent) as client:
        assert (await client.initialize())["protocolVersion"] == read


async def test_an_agent_that_accepts_every_version_speaks_version_1(chain):
    agent = FakeAgent(handlers=named("fast-agent-acp", protocolVersion=2))
    async with chain(Normalize(), agent) as client:
        assert (await client.initialize(version=2))["protocolVersion"] == 1


# -- set-ups ---------------------------------------------------------------------------------------

STDIO = {"name": "a", "command": "/a", "args": [], "env": []}
WITH_ENV = {**STDIO, "env": [{"name": "K", "value": "v"}]}
HTTP = {"type": "http", "name": "a", "url": "https://a/mcp", "headers": []}

OTHER = {"name": "a", "type": "acp", "serverId": "1"}


async def set_up(params, method="new", version=1):
    """The params that the agent gets."""
    agent = FakeAgent(handlers={f"session/{method}": lambda params: {"sessionId": "s"}})
    async with open_chain(Normalize(), agent, bridged=False) as client:
        await client.initialize(version=version)
        await client.request(f"session/{method}", params)
    return agent.transcript.of(f"session/{method}", "request")[0].params


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({**STDIO, "env": {"K": "v"}}, WITH_ENV),
        ({**STDIO, "env": ["K=v"]}, WITH_ENV),
        ({**STDIO, "env": [{"key": "K", "value": "v"}]}, WITH_ENV),
        ({**STDIO, "args": "--x 'b c'"}, {**STDIO, "args": ["--x", "b c"]}),
        ({**STDIO, "env": {"K": 1, "ON": True, "NO": None}},
         {**STDIO, "env": [{"name": "K", "value": "1"}, {"name": "ON", "value": "true"}]}),
        ({"name": "a", "command": "/a", "environment": {"K": "v"}}, WITH_ENV),
        ({"name": "a", "command": "/a"}, STDIO),
        ({**STDIO, "args": {}, "env": {}}, STDIO),
        ({"name": "a", "command": ["/a", "-x"]}, {**STDIO, "args": ["-x"]}),
        ({"type": "stdio", **STDIO}, STDIO),
        ({"command": "/bin/a"}, {**STDIO, "command": "/bin/a"}),
        ({"name": "a", "url": "https://a/mcp"}, HTTP),
        ({"name": "a", "url": "https://a/sse"}, {**HTTP, "type": "sse", "url": "https://a/sse"}),
        ({"name": "a", "httpUrl": "https://a/mcp"}, HTTP),
        ({**HTTP, "headers": {"K": "v"}}, {**HTTP, "headers": [{"name": "K", "value": "v"}]}),
        ({**HTTP, "type": "streamable-http"}, HTTP),
        (OTHER, OTHER),
        ("a", "a"),
    ],
)  # fmt: skip
async def test_a_loose_declaration_becomes_that_of_the_schema(given, meant):
    for servers in ([given], [meant]):
        assert (await set_up({**NEW, "mcpServers": servers}))["mcpServers"] == [meant]


@pytest.mark.parametrize("method", ["load", "resume", "fork"])
async def test_declarations_are_repaired_in_every_set_up(method):
    params = {"sessionId": "s", **NEW, "mcpServers": [{**STDIO, "env": {"K": "v"}}]}
    assert (await set_up(params, method))["mcpServers"] == [WITH_ENV]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"a": {"command": "/a"}, "b": {"url": "https://a/mcp"}}, [STDIO, {**HTTP, "name": "b"}]),
        ({"mcpServers": {"a": {"command": "/a"}}}, [STDIO]),
        ({"name": "a", "command": "/a"}, [STDIO]),
        ({}, []),
        (None, []),
        ([{**STDIO, "disabled": True}], []),
    ],
)
async def test_servers_may_be_an_object_by_name_or_absent(given, meant):
    assert (await set_up({**NEW, "mcpServers": given}))["mcpServers"] == meant


async def test_in_version_2_a_program_has_a_type():
    told = await set_up({**NEW, "mcpServers": [STDIO]}, version=2)
    assert told["mcpServers"] == [{"type": "stdio", **STDIO}]


@pytest.mark.parametrize(("given", "meant"), [("sub/../x", "x"), (None, ""), ("/a/", "/a/")])
async def test_directories_are_absolute(given, meant):
    told = await set_up({"cwd": given, "additionalDirectories": ["lib", "/b"], "mcpServers": []})
    cwd = meant if meant == "/a/" else str(Path.cwd() / meant)
    assert told["cwd"] == cwd
    assert told["additionalDirectories"] == [str(Path(cwd, "lib")), "/b"]


# -- tool calls ------------------------------------------------------------------------------------


def asking(agent, call):
    async def ask(session):
        params = {"sessionId": session, "toolCall": call, "options": [{"optionId": "a"}]}
        await agent.endpoint.request("session/request_permission", params)

    return ask


async def test_tool_calls_without_an_id_get_one(chain):
    call = {"sessionUpdate": "tool_call", "title": "x"}
    update = {"sessionUpdate": "tool_call_update", "status": "completed"}
    agent = FakeAgent()
    own = {**call, "toolCallId": "own"}, {**update, "toolCallId": "own"}
    agent.turns.append([call, update, asking(agent, {}), *own, call, update])
    async with chain(Normalize(), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "hi")

        one, two = "conductor-call-1", "conductor-call-2"
        ids = [each["toolCallId"] for each in client.transcript.updates()]
        assert ids == [one, one, "own", "own", two, two]
        asked = client.transcript.of("session/request_permission", "request")[0]
        assert asked.params["toolCall"] == {"toolCallId": one}


async def test_a_tool_call_that_was_not_announced_is_announced(chain):
    known = {"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "x"}
    agent = FakeAgent(handlers=named("gemini-cli"))
    new = {"toolCallId": "c2", "title": "y", "kind": "edit"}
    agent.turns.append([known, *(asking(agent, call) for call in (known, new, new))])
    async with chain(Normalize(), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "hi")

        told = {**new, "sessionUpdate": "tool_call", "status": "pending"}
        assert client.transcript.updates()[:2] == [known, told]
        client.transcript.check_order(
            "session/request_permission?", "session/update tool_call", "session/request_permission?"
        )


def closed(id, status="failed"):
    return {"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status}


@pytest.mark.parametrize(
    "end",
    [
        {"stopReason": "end_turn"},
        {"stopReason": "cancelled"},
        RequestError(-32603, "The agent has exited"),
    ],
)
async def test_calls_that_a_turn_leaves_open_are_closed_before_its_response(chain, end):
    asks = {"toolCallId": "c4", "title": "Run", "kind": "execute"}
    done = {"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "x", "status": "completed"}
    waits = {"sessionUpdate": "tool_call", "toolCallId": "c2", "title": "x", "status": "pending"}
    runs = {**waits, "toolCallId": "c3", "status": "in_progress"}
    agent = FakeAgent(handlers=named("gemini-cli"))
    agent.turns += [[done, waits, runs, asking(agent, asks), end], []]
    async with chain(Normalize(), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        for _ in range(2):
            with suppress(RequestError):
                await client.prompt(session, "hi")

        announced = {**asks, "sessionUpdate": "tool_call", "status": "pending"}
        calls = [done, waits, runs, announced]
        assert client.transcript.updates() == [*calls, *map(closed, ("c2", "c3", "c4"))]
        labels = [each for each in client.transcript.labels if "tool_call_update" in each]
        client.transcript.check_order(labels[-1], "answer to session/prompt")


async def test_in_version_2_calls_are_closed_before_idle_but_not_those_in_the_background(chain):
    def call(id, status="in_progress", **more):
        return {**closed(id, status), "title": "x", **more}

    terminal = [{"type": "terminal", "terminalId": "t"}]
    goes_on = [call("b"), call("t", content=terminal), call("p", "paused")]
    background = [{"type": "tool_call", "toolCallId": "b"}, {"type": "terminal", "terminalId": "t"}]
    end = {"stopReason": "cancelled", "background": background}
    agent = FakeAgent(turns=[[call("a"), *goes_on, end]])
    async with chain(Normalize(), agent) as client:
        await client.initialize(version=2)
        session = await client.new_session("/work")
        await client.prompt_turn(session, "hi")

        told = client.transcript.updates()
    kinds = [(each["sessionUpdate"], each.get("toolCallId"), each.get("status")) for each in told]
    ends = kinds.index(("tool_call_update", "a", "cancelled"))
    assert kinds[ends:] == [kinds[ends], ("state_update", None, None)]


async def test_well_formed_messages_are_forwarded_byte_for_byte(chain):
    update = '{"sessionUpdate":"tool_call","toolCallId":"c","rawInput":1e400}'
    raw = f'{{"sessionId":"s", "update":{update}}}'

    async def speak(session):
        line = f'{{"jsonrpc":"2.0","method":"session/update","params":{raw}}}'
        agent.endpoint.send_line(line.encode())

    agent = FakeAgent(turns=[[speak]])
    async with chain(Normalize(), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "hi")

        assert client.transcript.of("session/update")[0].raw == raw.encode()


# -- one_turn_at_a_time ----------------------------------------------------------------------------


async def two_prompts(client, sessions):
    """Send prompts at once; return the responses and their times."""
    answers, start = [], trio.current_time()

    async def prompt(session):
        answer = await client.prompt(session, "hi")
        answers.append((round(trio.current_time() - start), answer["stopReason"]))

    async with trio.open_nursery() as nursery:
        for session in sessions:
            nursery.start_soon(prompt, session)
            await trio.testing.wait_all_tasks_blocked()
    return answers


async def test_a_second_prompt_waits_for_the_end_of_the_first(chain, virtual_clock):
    agent = FakeAgent(turns=[[think]] * 4, handlers=named("codex-acp"))
    async with chain(Normalize(), agent) as client:
        await client.initialize()
        one, two = [await client.new_session("/work") for _ in range(2)]
        in_one = await two_prompts(client, [one, one])
        in_both = await two_prompts(client, [one, two])

    assert in_one == [(10, "end_turn"), (20, "end_turn")]
    assert in_both == [(10, "end_turn"), (10, "end_turn")]


async def test_a_prompt_that_waits_can_be_cancelled(chain, virtual_clock):
    agent = FakeAgent(turns=[[think], [think]], handlers=named("codex-acp"))
    async with chain(Normalize(), agent) as client, trio.open_nursery() as nursery:
        await client.initialize()
        session = await client.new_session("/work")
        nursery.start_soon(client.prompt, session, "hi")
        await trio.testing.wait_all_tasks_blocked()
        answers = []

        async def second():
            answers.append(await client.prompt(session, "hi"))

        nursery.start_soon(second)
        await trio.testing.wait_all_tasks_blocked()
        client.cancel(session)
        await trio.testing.wait_all_tasks_blocked()
        assert answers == [{"stopReason": "cancelled"}]
        assert len(agent.transcript.of("session/cancel")) == 1

    assert len(agent.transcript.of("session/prompt", "request")) == 1


async def test_repairs_can_be_added_and_skipped(chain, virtual_clock):
    for proxy, ends in [
        (Normalize(add=["one_turn_at_a_time"]), [10, 20]),
        (Normalize(add=["one_turn_at_a_time"], skip=["one_turn_at_a_time"]), [10, 10]),
    ]:
        async with chain(proxy, FakeAgent(turns=[[think]] * 2)) as client:
            await client.initialize()
            session = await client.new_session("/work")
            assert [when for when, _ in await two_prompts(client, [session] * 2)] == ends
