"""The conductor and Python proxies with the Rust reference conductor, nested both ways.

The conductor of the Rust SDK is named by `ACP_RUST_CONDUCTOR` or found on PATH; proxies written on
that SDK are named by `ACP_RUST_PROXY`. Both are paths, separated as in PATH; without them these
tests are skipped. The generations that differ on the wire are 5.0 (`proxy/*`) and 2.0 (`_proxy/*`):

    cargo install agent-client-protocol-conductor --root DIRECTORY [--version 2.0.0]

A proxy is a crate with `agent-client-protocol` 5.0 (feature `stdio`) or 2.2, tokio, and this `main`
(2.2: `Proxy.builder()`); it forwards everything and is initialised in one dialect only:

    async fn main() -> agent_client_protocol::Result<()> {
        agent_client_protocol::Proxy.v1().connect_to(agent_client_protocol::Stdio::new()).await
    }

Before 5.0 the SDK has types for `initialize`: it adds their defaults, drops what they do not know.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from conductor.client.acp_client import Client
from conductor.transport.child_process import start_child

ROOT = Path(__file__).parents[2]

CONDUCTOR = "agent-client-protocol-conductor"
CONDUCTORS = os.environ.get("ACP_RUST_CONDUCTOR") or shutil.which(CONDUCTOR)
PROXIES = os.environ.get("ACP_RUST_PROXY")


def one_each(paths):
    """Parameters of a fixture: each path, or one that skips the test."""
    return {"params": (paths or "").split(os.pathsep), "ids": lambda _: "rust"}


@pytest.fixture(**one_each(CONDUCTORS))
def rust(request):
    """The command of the Rust conductor."""
    if not request.param:
        pytest.skip("no Rust conductor: set ACP_RUST_CONDUCTOR or put it on PATH")

    def rust(mode, *components):
        return [request.param, mode, *map(shlex.join, components)]

    version = subprocess.run([request.param, "--version"], capture_output=True, text=True).stdout
    rust.major = int(re.search(r" (\d+)\.", version).group(1))
    rust.dialect = "proxy" if rust.major >= 5 else "_proxy"
    return rust


@pytest.fixture(**one_each(PROXIES))
def rust_proxy(request):
    if not request.param:
        pytest.skip("no proxy written on the Rust SDK: set ACP_RUST_PROXY")
    return [request.param]


@pytest.fixture
def proxy(component):
    def proxy(name, dialect="both", *flags):
        flags = ["--dialect", dialect, "--tag", "--name", name, *flags]
        return component("pass_proxy", *flags)

    return proxy


@pytest.fixture
def check(alone, check_same, converse, tagged):
    """Run a client with a chain whose proxies are `a` and `b`; compare with the agent alone."""

    def check(client, chain, agent):
        summary, expected = converse(client, chain), tagged(alone(client, agent), "a", "b")
        assert has_all_of(summary["initialize"], expected["initialize"])
        check_same(summary, expected | {"initialize": summary["initialize"]})

    return check


def has_all_of(actual, expected):
    if isinstance(expected, dict):
        return all(has_all_of(actual.get(key), value) for key, value in expected.items())
    return actual == expected


@pytest.fixture(params=["py_client", "ts_client", "ts_client --request-cancel"])
def client(request, peer):
    return peer(*request.param.split())


@pytest.fixture
def agent(peer):
    return peer("ts_agent")


def test_python_proxies_run_under_the_rust_conductor(agent, check, client, proxy, rust):
    chain = rust("agent", proxy("a", rust.dialect), proxy("b"), agent)

    check(client, chain, agent)


def test_a_typescript_proxy_runs_under_the_rust_conductor(agent, check, client, peer, proxy, rust):
    if rust.dialect == "_proxy":
        pytest.skip("the TypeScript SDK knows `proxy/*` only")
    chain = rust("agent", peer("ts_proxy", "--tag", "a"), proxy("b"), agent)

    check(client, chain, agent)


def test_the_conductor_is_a_proxy_of_the_rust_conductor(
    agent, check, client, conductor, proxy, rust
):
    nested = conductor("proxy", proxy("a", "proxy"), proxy("b", "_proxy", "--wrong", "echo"))

    check(client, rust("agent", nested, agent), agent)


def test_the_rust_conductor_is_a_proxy_of_the_conductor(
    agent, check, client, conductor, proxy, rust
):
    chain = conductor("agent", rust("proxy", proxy("a", rust.dialect), proxy("b")), agent)

    check(client, chain, agent)


def test_conductors_nest_three_deep(agent, check, client, conductor, proxy, rust):
    inner = conductor("proxy", proxy("a", "_proxy"))
    chain = conductor("agent", rust("proxy", inner), proxy("b", "proxy"), agent)

    check(client, chain, agent)


def test_a_rust_proxy_is_detected_and_kept(agent, check, client, conductor, proxy, rust_proxy):
    chain = conductor("agent", proxy("a", "proxy"), rust_proxy, proxy("b", "_proxy"), agent)

    check(client, chain, agent)


NOTES = """
from conductor.proxy import Proxy, run, tool


class Notes(Proxy):
    @tool
    async def note(self, text: str) -> str:
        return f"noted {text}"


run(Notes)
"""


@pytest.mark.parametrize("kind", ["stand-alone", "chain"])
async def test_an_agent_under_the_rust_conductor_calls_a_tool_of_a_proxy(
    conductor, rust, tmp_path, kind
):
    """It announces what the agent does: no MCP over ACP."""
    file, chain = tmp_path / "notes.py", tmp_path / "chain.yaml"
    file.write_text(NOTES)
    chain.write_text("version: 1\nproxies:\n  - use: ./notes.py:Notes\n")
    alone = ["env", f"PYTHONPATH={ROOT}", sys.executable, str(file)]
    notes = alone if kind == "stand-alone" else conductor("proxy", [str(chain)])
    agent = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "conductor.testing.agent"]
    said = []
    child = start_child(rust("agent", notes, agent), env=dict(os.environ), cwd=None)
    client = Client(child.transport, {"session/update": said.append})
    try:
        with trio.fail_after(60):
            async with client.open():
                answer = await client.initialize()
                session = await client.new_session("/")
                await client.prompt(session, 'call Notes note {"text": "milk"}')
                client.close()
                await child.wait()
    finally:
        child.signal(9)
        child.close()

    assert "acp" not in answer["agentCapabilities"].get("mcpCapabilities", {})
    assert "noted milk" in str(said)
