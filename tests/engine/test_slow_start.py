"""What docs/reliability.md promises of slow starts and slow set-ups of sessions (virtual clock)."""

from __future__ import annotations

import json

import attrs
import pytest
import trio
from support.peers.wire import PassProxy
from support.played_chain import played_chain, prompt, told

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


STOPPED = "its process 7 is stopped by SIGSTOP"


async def test_a_stopped_process_is_named_where_its_component_does_not_react(
    tmp_path, autojump_clock
):
    keys = {"request_timeout": {"session/list": "5s"}, "stall_timeout": "20s"}
    async with played_chain(tmp_path, keys) as chain:
        await chain.open("s1")
        chain["agent"].stopped = STOPPED
        chain.client.send({"id": 1, "method": "session/list", "params": {}})
        await trio.sleep(6)
        assert (await chain.client.receive())["error"]["message"].endswith(f"; {STOPPED}")
        load = {"sessionId": "s1", "cwd": "/s1", "mcpServers": SERVERS}
        chain.client.send({"id": 2, "method": "session/resume", "params": load})
        await trio.sleep(2.5)
        assert chain.events(SET_UP)[0]["stopped"] == STOPPED
        assert told(await chain.client.receive())[1].endswith(STOPPED)
        chain.client.send(prompt(3))
        await trio.sleep(21)
        assert told(await chain.client.receive())[1].endswith(STOPPED)


async def test_a_process_that_is_stopped_at_the_start_is_named(tmp_path, autojump_clock):
    async with played_chain(tmp_path, {"start_timeout": "10s"}) as chain:
        chain.client.send({"id": 0, "method": "initialize", "params": {"protocolVersion": 1}})
        await chain.expect("initialize")
        chain["agent"].stopped = STOPPED
        await trio.sleep(11)

        assert chain.events(START)[0]["stopped"] == STOPPED
        assert STOPPED in json.dumps((await chain.client.receive())["error"])


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


@attrs.define(eq=False)
class KeepsSessions(PassProxy):
    """Passes no answer to `session/new` on."""

    def on_response(self, message):
        if b"sessionId" not in message.get("result", b""):
            super().on_response(message)


async def test_a_proxy_that_keeps_the_answer_of_its_successor_is_named(tmp_path, autojump_clock):
    async with played_chain(tmp_path, None, {"name": "p"}, peers={"p": KeepsSessions}) as chain:
        await chain.open()
        params = {"cwd": "/", "mcpServers": []}
        chain.client.send({"id": 1, "method": "session/new", "params": params})
        await trio.sleep(1.5)
        await chain.serve("session/new", {"sessionId": "s1"})
        await trio.sleep(1.5)
        assert chain.events(SET_UP) == []
        await trio.sleep(1)

        assert [event["component"] for event in chain.events(SET_UP)] == ["p"]


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
