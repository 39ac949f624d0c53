from __future__ import annotations

import pytest

from conductor.proxy import RequestError
from conductor.testing import FakeAgent
from proxies.sandbox_guard import SandboxGuard

HELP = "Add it to `workspaces` (chain.yaml:3:3)."


def guard():
    return SandboxGuard(["/home/me/app", "/data"], help=HELP)


@pytest.mark.parametrize("method", ["new", "load", "resume", "fork"])
@pytest.mark.parametrize(
    "directories",
    [
        {"cwd": "/home/me"},
        {"cwd": "/home/me/app/../other"},
        {"cwd": "/home/me/application"},
        {"cwd": "app"},
        {"cwd": "/data", "additionalDirectories": ["/home/me/app", "/home/me"]},
    ],
)
async def test_a_session_elsewhere_is_refused_before_the_agent_sees_it(chain, method, directories):
    agent = FakeAgent()
    async with chain(guard(), agent, bridged=False) as client:
        await client.initialize()
        with pytest.raises(RequestError) as refused:
            await client.request(
                f"session/{method}", {"sessionId": "s", "mcpServers": [], **directories}
            )

    wrong = [directories["cwd"], *directories.get("additionalDirectories", [])][-1]
    assert refused.value.code == -32602
    assert refused.value.message == (
        f"The sandbox of this agent does not show {wrong}, but /home/me/app, /data. {HELP}"
    )
    assert agent.transcript.of(f"session/{method}") == []


async def test_a_session_in_a_visible_directory_is_opened(chain):
    async with chain(guard(), FakeAgent(), bridged=False) as client:
        await client.initialize()

        assert await client.new_session("/home/me/app") == "session-1"
        assert await client.new_session("/data/x/") == "session-2"


async def test_files_and_terminals_of_the_client_are_not_announced(chain):
    agent = FakeAgent()
    async with chain(guard(), agent, bridged=False) as client:
        await client.initialize(
            capabilities={"fs": {"readTextFile": True}, "terminal": True, "other": {"x": 1}}
        )

    (heard,) = agent.transcript.of("initialize")
    assert heard.params["clientCapabilities"] == {"other": {"x": 1}}


@pytest.mark.parametrize(
    "method",
    [
        *("fs/read_text_file", "fs/write_text_file", "terminal/create", "terminal/output"),
        *("terminal/kill", "terminal/release", "terminal/wait_for_exit"),
    ],
)
async def test_files_and_terminals_of_the_client_are_refused(chain, method):
    errors = []

    async def ask(session):
        with pytest.raises(RequestError) as refused:
            await agent.endpoint.request(method, {"sessionId": session, "path": "/home/me/app/a"})
        errors.append(refused.value)

    agent = FakeAgent(turns=[[ask]])
    async with chain(guard(), agent, bridged=False) as client:
        client.handlers[method] = lambda params: {"content": "secret"}
        await client.initialize()
        await client.prompt(await client.new_session("/data"), "hi")

    assert [error.code for error in errors] == [-32601]
    assert "sandbox" in errors[0].message
    assert client.transcript.of(method) == []
