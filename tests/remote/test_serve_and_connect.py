"""`acp-conductor serve` with `connect:` and `acp-conductor connect`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio
from support.raw_json import compact, dumps
from support.remote_agents import program, reach

from conductor.chainfile.model import ComponentSpec, RestartBudget
from conductor.errors import RequestError

pytestmark = pytest.mark.slow

COMPONENTS = Path(__file__).parents[1] / "support" / "components"
CLI = (sys.executable, "-m", "conductor")
SCHEMES = pytest.mark.parametrize("scheme", ["ws", "http"])


def serve(directory: Path, chain: str, port: int = 0, *options: str, **more: object):
    file = directory / "chain.yaml"
    file.write_text(f"version: 1\n{chain}")
    argv = (*CLI, "serve", str(file), "--listen", f"127.0.0.1:{port}", *options)
    return program(*argv, stderr=subprocess.STDOUT, **more)


def echo_agent(*options: str) -> str:
    words = [sys.executable, str(COMPONENTS / "echo_agent.py"), *options]
    return f"agent: {{run: {json.dumps(words)}}}\n"


def where(line: str, scheme: str) -> str:
    return scheme + line.partition("http")[2].removesuffix("\n")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


async def test_a_remote_chain_of_proxies_is_a_proxy_of_this_one(tmp_path):
    proxy = [sys.executable, str(COMPONENTS / "pass_proxy.py"), "--name", "far", "--tag"]
    agent = (sys.executable, str(COMPONENTS / "echo_agent.py"))
    with serve(tmp_path, f"proxies: [{{run: {json.dumps(proxy)}}}]\n") as (_, line):
        far = ComponentSpec(name="remote-proxy", connect=where(line, "http"))
        async with reach(proxies=[far], run=agent) as client:
            await client.initialize()
            session = await client.new_session("/tmp")
            await client.prompt(session, "echo hello")

    assert client.transcript.text(session) == "far>[far]hello"


@SCHEMES
async def test_after_the_server_was_killed_its_sessions_are_loaded_again(scheme, tmp_path):
    port = free_port()
    asked = trio.Event()

    async def never(params: object) -> None:
        asked.set()
        await trio.sleep_forever()

    restarts = RestartBudget(count=20, within=60.0)
    chain = echo_agent("--back", "load")
    with ExitStack() as stack:
        process, line = stack.enter_context(serve(tmp_path, chain, port))
        async with reach(connect=where(line, scheme), restarts=restarts) as client:
            client.handlers["session/request_permission"] = never
            await client.initialize()
            session = await client.new_session("/tmp")
            async with trio.open_nursery() as nursery:

                async def prompt() -> None:
                    with pytest.raises(RequestError, match=r"component .far. "):
                        await client.prompt(session, "perm")

                nursery.start_soon(prompt)
                await asked.wait()
                process.kill()
                process.wait()
                another = stack.enter_context(serve(tmp_path, chain, port))
            assert another[0].poll() is None
            answer = await client.prompt(session, "how")

    assert answer["stopReason"] == "end_turn"
    assert client.transcript.text(session).endswith("loaded")


@SCHEMES
async def test_a_prompt_is_answered_soon_after_connection_refused(scheme, tmp_path, monkeypatch):
    """Long before the time is over for which the server would have kept its chain."""
    monkeypatch.setattr("conductor.network.backoff.REFUSED_TIMEOUT", 0.3)
    monkeypatch.setattr("conductor.remote.websocket.REFUSED_TIMEOUT", 0.3)
    with serve(tmp_path, echo_agent()) as (process, line):
        async with reach(connect=where(line, scheme), restarts=RestartBudget(0, 1.0)) as client:
            client.handlers["session/request_permission"] = lambda _: _kill(process)
            await client.initialize()
            session = await client.new_session("/tmp")
            with trio.fail_after(10), pytest.raises(RequestError, match="connection refused"):
                await client.prompt(session, "perm")


async def _kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    await trio.sleep_forever()


@pytest.mark.fast
def test_connect_is_the_local_end_of_a_remote_agent(tmp_path):
    tokens = {**os.environ, "ACP_CONDUCTOR_TOKENS": "me:the-one-right-token"}
    (tmp_path / "token").write_text("the-one-right-token\n")
    request = {"protocolVersion": 1, "clientCapabilities": {}}
    line_in = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": request}
    with serve(tmp_path, "agent: {use: test-agent}\n", env=tokens) as (_, line):
        argv = [*CLI, "connect", where(line, "http"), "--token-file", str(tmp_path / "token")]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(dumps(line_in) + b"\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        process.stdin.close()
        status = process.wait(timeout=20)
        process.stdout.close()

    assert answer["result"]["agentInfo"]["name"] == "test-agent"
    assert status == 0


@pytest.fixture
def connect(command_server, tmp_path):
    """Run `connect` with a client that says `initialize` and leaves."""

    def connect(*words, **env):
        request = {"protocolVersion": 1}
        line = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": request}
        return command_server.run(
            ["connect", *words],
            input=compact(line) + "\n",
            cwd=tmp_path,
            env={**os.environ, **env},
            timeout=30,
        )

    return connect


def test_connect_explains_an_unreachable_server(connect):
    url = f"ws://127.0.0.1:{free_port()}"

    result = connect(url)

    assert result.returncode == 3
    reason = json.loads(result.stdout)["error"]["data"]["reason"]
    assert (
        reason == f"it could not be reached at {url}/acp: connection refused: is it running there?"
    )


def test_connect_warns_of_a_token_that_others_can_read_and_does_not_show_it(connect):
    token = "a-token-that-is-secret"

    result = connect("ws://host.invalid", ACP_CONDUCTOR_TOKEN=token, ACP_CONDUCTOR_LOG="debug")

    assert "credentials sent in plain text" in result.stderr
    assert token not in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["ftp://example.org"], "expected a URL such as wss://example.org/acp"),
        (["ws://example.org", "--ca", __file__], "ws:// is not encrypted: write wss://"),
        (["wss://example.org", "--key", __file__], "--key needs --cert"),
        (["unix:/x", "--token-file", __file__], "A Unix socket has neither headers nor TLS"),
        (["wss://me:hidden@example.org"], "all users of this machine can read a password"),
        (["ws://example.org", "--header-file", __file__], "is not of the form `Name: value`"),
    ],
)
def test_connect_refuses_options_that_do_not_fit(connect, words, complaint):
    result = connect(*words)

    assert result.returncode == 2
    assert complaint in " ".join(result.stderr.split())
