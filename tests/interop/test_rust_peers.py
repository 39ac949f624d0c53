"""Clients and agents on the Rust SDK, of protocol versions 1 and 2, crossed with each other and
with those on other SDKs: `v1_v2` is inserted where the versions differ.

`ACP_RUST_PEERS` names the directory of the programs; without it these tests are skipped. Three are
examples of the SDK (agent-client-protocol 5.0), the agent of version 1 is in `rust/`:

    cargo install agent-client-protocol --version 5.0.0 --examples --root DIRECTORY \
        --features process,stdio,unstable_protocol_v2
    cargo install --path tests/interop/rust --root DIRECTORY

The programs are in `DIRECTORY/bin`. Rust 1.88 or later compiles them in two minutes.
"""

import json
import os
import shlex
import subprocess

import pytest

from conductor.chainfile import load
from conductor.client.embedding import attach_file
from conductor.errors import RequestError
from conductor.testing import FakeClient

DIRECTORY = os.environ.get("ACP_RUST_PEERS")
pytestmark = pytest.mark.skipif(not DIRECTORY, reason="no Rust peers: ACP_RUST_PEERS is not set")

CLIENTS = {1: "yolo_one_shot_client", 2: "v2_one_shot_client"}
RUST_AGENTS = ["rust_agent", "simple_agent_v2"]
AGENTS = [*RUST_AGENTS, "py_agent", "ts_agent", "ts_v2_agent"]


def rust(name):
    return [os.path.join(DIRECTORY, name)]


@pytest.fixture
def chain_file(tmp_path):
    """A chain file with these proxies before the agent."""

    def chain_file(agent, proxies=()):
        file = tmp_path / "chain.yaml"
        entry = {"run": agent, "name": "agent"}
        file.write_text(json.dumps({"version": 1, "proxies": list(proxies), "agent": entry}))
        return str(file)

    return chain_file


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("agent", AGENTS)
def test_a_rust_client_talks_with_every_agent(chain_file, conductor, peer, version, agent):
    command = rust(agent) if agent in RUST_AGENTS else peer(agent)
    proxies = [{"use": "log_messages"}] * 2
    chain = shlex.join(conductor("run", [chain_file(command, proxies)]))

    client = subprocess.run(
        [*rust(CLIENTS[version]), "--command", chain, "hello"],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert client.returncode == 0, client.stderr
    assert "you said: hello" in client.stdout or "Echo: hello" in client.stdout
    assert "EndTurn" in client.stderr


@pytest.mark.parametrize("client_version", [1, 2])
async def test_a_rust_agent_asks_and_dies_in_a_turn(chain_file, client_version):
    async with attach_file(FakeClient, load(chain_file(rust("rust_agent")))) as attached:
        client = attached.client
        await client.initialize(version=client_version)
        session = await client.new_session("/")
        assert await end_of_turn(client, session, "permission") == "end_turn"
        assert client.transcript.text() == "you said: permission, yes"
        error = await end_of_turn(client, session, "die")
    assert error.startswith("component 'agent' exited with status 3. The prompt was")


async def end_of_turn(client, session, text):
    """The stop reason, or the message of the error that ends the turn."""
    try:
        end = await client.prompt_turn(session, text)
    except RequestError as exc:
        return exc.message
    return end["error"]["message"] if "error" in end else end["stopReason"]
