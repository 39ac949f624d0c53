"""The methods of `self.client` and `self.agent`: what they send and return."""

from __future__ import annotations

import pytest

from conductor.proxy import Proxy, on, on_prompt
from conductor.schema import v1
from conductor.testing import FakeAgent


def recorder(received, method, result):
    """A handler that records what it gets, and answers `result`."""

    def handle(params):
        received.append((method, params))
        return result

    return handle


async def test_a_proxy_runs_a_command_in_a_terminal_of_the_client(chain):
    seen = []

    class Runs(Proxy):
        @on("session/prompt")
        async def run(self, request: v1.PromptRequest, forward):
            session = request.session_id
            terminal = await self.client.create_terminal(
                session, "make", ["test"], env={"CI": "1"}, cwd="/work", output_byte_limit=100
            )
            seen.append(await self.client.wait_for_terminal_exit(session, terminal))
            seen.append(await self.client.terminal_output(session, terminal))
            await self.client.kill_terminal(session, terminal)
            await self.client.release_terminal(session, terminal)
            return await forward(request)

    async with chain(Runs(), FakeAgent(turns=[["done"]])) as client:
        received = []
        for method, result in {
            "terminal/create": {"terminalId": "t1"},
            "terminal/wait_for_exit": {"exitCode": 2},
            "terminal/output": {"output": "no", "truncated": False},
            "terminal/kill": {},
            "terminal/release": {},
        }.items():
            client.handlers[method] = recorder(received, method, result)
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "go")

    where = {"sessionId": session, "terminalId": "t1"}
    assert received == [
        (
            "terminal/create",
            {
                "sessionId": session,
                "command": "make",
                "args": ["test"],
                "env": [{"name": "CI", "value": "1"}],
                "cwd": "/work",
                "outputByteLimit": 100,
            },
        ),
        ("terminal/wait_for_exit", where),
        ("terminal/output", where),
        ("terminal/kill", where),
        ("terminal/release", where),
    ]
    assert (seen[0].exit_code, seen[1].output, seen[1].truncated) == (2, "no", False)


async def test_a_proxy_loads_and_closes_a_session_of_the_agent(chain):
    seen = []

    class Opens(Proxy):
        @on("session/prompt")
        async def open(self, params, forward):
            server = {"name": "docs", "command": "docs", "args": [], "env": []}
            seen.append(await self.agent.load_session("s1", "/work", [server]))
            await self.agent.close_session("s1")
            return await forward(params)

    received = []
    results = {
        "session/load": {"modes": {"currentModeId": "ask", "availableModes": []}},
        "session/close": {},
    }
    agent = FakeAgent(
        {method: recorder(received, method, result) for method, result in results.items()},
        turns=[["done"]],
    )
    async with chain(Opens(), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "go")

    assert seen == [results["session/load"]]
    server = {"name": "docs", "command": "docs", "args": [], "env": []}
    assert received == [
        ("session/load", {"sessionId": "s1", "cwd": "/work", "mcpServers": [server]}),
        ("session/close", {"sessionId": "s1"}),
    ]


@pytest.mark.parametrize(
    ("version", "log_in", "log_out"),
    [(1, "authenticate", "logout"), (2, "auth/login", "auth/logout")],
)
async def test_a_proxy_logs_in_and_out(chain, version, log_in, log_out):
    class Asks(Proxy):
        @on_prompt
        async def ask(self, session, prompt, forward):
            await self.agent.log_in("key")
            await self.agent.log_out()
            return await forward()

    received = []
    agent = FakeAgent({method: recorder(received, method, {}) for method in (log_in, log_out)})
    async with chain(Asks(), agent, strict=True) as client:
        await client.initialize(version=version)
        await client.prompt_turn(await client.new_session("/work"), "go")

    assert received == [(log_in, {"methodId": "key"}), (log_out, {})]


@pytest.mark.parametrize(("version", "tag"), [(1, {}), (2, {"type": "id"})])
async def test_a_proxy_sets_the_options_of_a_session(chain, version, tag):
    seen = []

    class Sets(Proxy):
        @on("session/new")
        async def set(self, params, forward):
            opened = await forward()
            seen.append(await self.agent.set_config_option(opened["sessionId"], "model", "big"))
            seen.append(await self.agent.set_config_option(opened["sessionId"], "fast", True))
            return opened

    received = []
    options = [{"id": "model", "name": "Model", "type": "select", "currentValue": "big"}]
    handler = recorder(received, "set", {"configOptions": options})
    agent = FakeAgent({"session/set_config_option": handler})
    async with chain(Sets(), agent) as client:
        await client.initialize(version=version)
        session = await client.new_session("/work")

    assert seen == [options, options]
    assert [params for _, params in received] == [
        {"sessionId": session, "configId": "model", "value": "big", **tag},
        {"sessionId": session, "configId": "fast", "value": True, "type": "boolean"},
    ]


async def test_a_proxy_asks_the_user_with_a_form_and_with_a_page(chain):
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    answers = [
        {"action": "accept", "content": {"name": "x"}},
        {"action": "accept"},
        {"action": "decline"},
        {"action": "accept"},
        {"action": "cancel"},
    ]
    seen, received = [], []

    class Asks(Proxy):
        @on("session/prompt")
        async def ask(self, params, forward):
            id = params["sessionId"]
            for call in ("c1", None, None):
                seen.append(
                    await self.client.elicit("Name?", schema, session_id=id, tool_call_id=call)
                )
            for _ in range(2):
                url = "https://example.org/login"
                seen.append(await self.client.elicit_url("Log in", url, "e1", session_id=id))
            await self.client.complete_elicitation("e1")
            return await forward()

    async with chain(Asks(), FakeAgent(turns=[["done"]])) as client:

        def answer(params):
            received.append(params)
            return answers[len(received) - 1]

        client.handlers["elicitation/create"] = answer
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "go")

    assert seen == [{"name": "x"}, {}, None, True, False]
    form = {
        "mode": "form",
        "message": "Name?",
        "requestedSchema": schema,
        "sessionId": session,
    }
    page = {
        "mode": "url",
        "message": "Log in",
        "url": "https://example.org/login",
        "elicitationId": "e1",
        "sessionId": session,
    }
    assert received == [{**form, "toolCallId": "c1"}, form, form, page, page]
    (completed,) = client.transcript.of("elicitation/complete", "notification")
    assert completed.params == {"elicitationId": "e1"}
