"""What docs/reliability.md promises of slow starts and slow set-ups of sessions (virtual clock)."""

from __future__ import annotations

import pytest
import trio
from support.played_chain import played_chain, told

BOTH = pytest.mark.parametrize("version", [1, 2])
SERVERS = [{"name": "files", "command": "files", "args": [], "env": []}]
START, SET_UP = "component slow to start", "component slow to set up a session"

PLUGIN = """
from contextlib import asynccontextmanager

import trio

from conductor.proxy import Proxy


class Slow(Proxy):
    @asynccontextmanager
    async def lifespan(self):
        await trio.sleep(2.5)
        yield
"""


async def test_a_component_that_does_not_answer_initialize_is_named_after_two_seconds(
    tmp_path, autojump_clock
):
    """The proxy that waits for its successor is not."""
    async with played_chain(tmp_path, None, {"name": "p"}) as chain:
        params = {"protocolVersion": 1}
        chain.client.send({"id": 0, "method": "initialize", "params": params})
        await trio.sleep(1.9)
        assert chain.events(START) == []
        await trio.sleep(20)

        assert chain.events(START) == [
            {"component": "agent", "waits_for": "its answer to initialize"}
        ]
        await chain.serve("initialize", params)
        assert (await chain.client.receive())["id"] == 0


async def test_a_plugin_whose_lifespan_does_not_begin_is_named(tmp_path, autojump_clock):
    (tmp_path / "slow.py").write_text(PLUGIN)
    async with played_chain(tmp_path, None, {"use": "./slow.py:Slow", "name": "slow"}) as chain:
        params = {"protocolVersion": 1}
        chain.client.send({"id": 0, "method": "initialize", "params": params})
        await chain.serve("initialize", params)

        assert (await chain.client.receive())["id"] == 0
        assert chain.events(START) == [{"component": "slow", "waits_for": "its lifespan()"}]


@BOTH
async def test_a_slow_new_session_is_logged_with_the_mcp_servers_that_may_be_starting(
    tmp_path, version, autojump_clock
):
    async with played_chain(tmp_path, None, {"name": "p"}, version=version) as chain:
        await chain.open()
        params = {"cwd": "/", "mcpServers": SERVERS}
        chain.client.send({"id": 1, "method": "session/new", "params": params})
        await trio.sleep(1.9)
        assert chain.events(SET_UP) == []
        await trio.sleep(20)

        (event,) = chain.events(SET_UP)
        assert event == {
            "component": "agent",
            "waits_for": "its answer to session/new",
            "mcp_servers": ["files"],
        }
        await chain.serve("session/new", {"sessionId": "s1"})
        assert await chain.client.receive() == {"id": 1, "result": {"sessionId": "s1"}}


@BOTH
@pytest.mark.parametrize("method", ["session/load", "session/resume", "session/fork"])
async def test_the_user_gets_a_notice_in_a_session_that_exists(
    tmp_path, version, method, autojump_clock
):
    async with played_chain(tmp_path, None, {"name": "p"}, version=version) as chain:
        await chain.open()
        params = {"sessionId": "s1", "cwd": "/", "mcpServers": SERVERS}
        chain.client.send({"id": 1, "method": method, "params": params})
        await trio.sleep(2.1)

        session, text = told(await chain.client.receive())

        assert (session, text) == (
            "s1",
            f"[acp-conductor] waiting for agent to answer {method}; "
            "it may be starting MCP servers: files",
        )
        (event,) = chain.events(SET_UP)
        assert (event["component"], event["session"]) == ("agent", "s1")
