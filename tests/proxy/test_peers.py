"""The methods of `self.client` and `self.agent`: what they send and return."""

from __future__ import annotations

from conductor.proxy import Proxy, on
from conductor.schema import v1
from conductor.testing import FakeAgent


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

        def answer(method, result):
            def handler(params):
                received.append((method, params))
                return result

            client.handlers[method] = handler

        answer("terminal/create", {"terminalId": "t1"})
        answer("terminal/wait_for_exit", {"exitCode": 2})
        answer("terminal/output", {"output": "no", "truncated": False})
        answer("terminal/kill", {})
        answer("terminal/release", {})
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


async def test_a_proxy_lists_closes_and_deletes_sessions_of_the_agent(chain):
    pages = []

    class Manages(Proxy):
        @on("session/prompt")
        async def manage(self, request: v1.PromptRequest, forward):
            pages.append(await self.agent.list_sessions(cwd="/work"))
            await self.agent.close_session("s8")
            await self.agent.delete_session("s9")
            return await forward(request)

    received = []

    def handler(method, result):
        def handle(params):
            received.append((method, params))
            return result

        return handle

    page = {"sessions": [], "nextCursor": "2"}
    agent = FakeAgent(
        {
            "session/list": handler("session/list", page),
            "session/close": handler("session/close", {}),
            "session/delete": handler("session/delete", {}),
        },
        turns=[["done"]],
    )
    async with chain(Manages(), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "go")

    assert pages == [page]
    assert received == [
        ("session/list", {"cwd": "/work"}),
        ("session/close", {"sessionId": "s8"}),
        ("session/delete", {"sessionId": "s9"}),
    ]
