"""The conductor's working directory is removed while it runs, as when a worktree is deleted."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from support.mcp_providers import Provider, declaration, toolbox

from conductor.client.acp_client import Client
from conductor.transport.child_process import start_child

ROOT = Path(__file__).parents[2]
AGENT = [sys.executable, "-m", "conductor.testing.agent"]
CHAIN = f"""
version: 1
proxies:
  - use: mcp_servers
    with: {{servers: []}}
agent: {{run: {AGENT}}}
"""


@asynccontextmanager
async def client_of(shell, *arguments, update=lambda params: None):
    """A client of the conductor, which this shell command starts with these arguments."""
    argv = ["/bin/sh", "-c", f'{shell} && exec "$@"', "sh", sys.executable, "-m", "conductor"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    child = start_child([*argv, *arguments], env=env, cwd=None)
    client = Client(child.transport, {"session/update": update})
    try:
        with trio.fail_after(60):
            async with client.open():
                Provider(client, "serverId", toolbox).mount()
                await client.initialize()
                yield client
                client.close()
                await child.wait()
    finally:
        child.signal(9)
        child.close()


@pytest.mark.parametrize(
    "how", ["agent", *(pytest.param(how, marks=pytest.mark.slow) for how in ("run", "relative"))]
)
async def test_sessions_with_servers_go_on(how, tmp_path):
    place = tmp_path / "worktree"
    await trio.Path(place).mkdir()
    await trio.Path(tmp_path / "chain.yaml").write_text(CHAIN)
    arguments = {
        "agent": ["agent", shlex.join(AGENT)],
        "run": ["run", str(tmp_path / "chain.yaml")],
        "relative": ["run", "../chain.yaml"],
    }[how]
    said: list[str] = []

    def update(params):
        if params["update"]["sessionUpdate"] == "agent_message_chunk":
            said.append(params["update"]["content"]["text"])

    async with client_of(f"cd {place}", *arguments, update=update) as client:
        await trio.Path(place).rmdir()
        for _ in range(2):
            session = await client.new_session(str(tmp_path), [declaration("serverId")])
            await client.prompt(session, "tools")

    assert "".join(said).count("add") == 2


@pytest.mark.slow
async def test_a_chain_that_is_started_in_a_removed_directory(tmp_path):
    place = tmp_path / "worktree"
    await trio.Path(place).mkdir()
    removed = f"cd {place} && rmdir {place}"
    async with client_of(removed, "agent", shlex.join(AGENT)) as client:
        session = await client.new_session(str(tmp_path), [declaration("serverId")])
        stop = await client.prompt(session, "hello")
    assert stop["stopReason"] == "end_turn"
