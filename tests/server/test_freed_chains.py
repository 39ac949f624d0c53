"""The objects of a chain that has ended are freed without a garbage collection."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter
from pathlib import Path

import pytest
import trio
import trio.testing
from support.raw_json import compact
from support.server_clients import (
    Remote,
    ask,
    http,
    initialize,
    new_session,
    prompt,
    request,
    serving,
    websocket,
)

from conductor.server.http.mailboxes import Mailbox, Mailboxes
from conductor.transport.io_loop import Flusher


@pytest.fixture
def no_collections():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


CHAIN = """\
version: 1
proxies:
  - use: usage
agent:
  use: test-agent
"""
ECHO_AGENT = Path(__file__).parents[1] / "support" / "components" / "echo_agent.py"
PROGRAM_CHAIN = f"""\
version: 1
proxies:
  - use: usage
agent:
  run: [{sys.executable}, {ECHO_AGENT}]
"""


async def test_the_components_of_an_ended_chain_are_freed_at_once(tmp_path, no_collections):
    async with serving(tmp_path, chain=CHAIN) as server:
        async with websocket(server) as socket:
            await ask(socket, initialize())
            answer = await ask(socket, new_session(1))
            await ask(socket, prompt(2, answer["result"]["sessionId"], "echo hello"))
            await ask(socket, request(3, "session/load", sessionId="unknown", cwd="/"))
            (client,) = server.clients.by_id.values()
            components = [weakref.ref(each) for each in client.chain.components]
            ended = client.ended
            del client
        await ended.wait()
        await trio.testing.wait_all_tasks_blocked()

        assert components
        assert [ref() for ref in components] == [None] * len(components)


async def test_what_an_ended_client_has_sent_is_freed_at_once(tmp_path, no_collections):
    """Its session set-ups, and a message that it has not finished."""
    async with serving(tmp_path, chain=CHAIN) as server:
        async with websocket(server) as socket:
            await ask(socket, initialize())
            await ask(socket, new_session(1))
            (client,) = server.clients.by_id.values()
            chain, ended = client.chain, client.ended
            log = weakref.ref(chain.client.session_log)
            splitter = weakref.ref(chain.client_end.connection._splitter)
            del client
        await ended.wait()
        await trio.testing.wait_all_tasks_blocked()

        assert (log(), splitter()) == (None, None)
        assert chain.client_end.unanswered is None


async def over_websocket(server):
    async with websocket(server) as socket:
        await ask(socket, initialize())
        answer = await ask(socket, new_session(1))
        await ask(socket, prompt(2, answer["result"]["sessionId"], "echo hello"))


async def cut_in_a_turn(server):
    # With a queue for all updates of the turn: trio-websocket does not leave while it is full.
    async with websocket(server, message_queue_size=100) as socket:
        await ask(socket, initialize())
        answer = await ask(socket, new_session(1))
        await socket.send_message(compact(prompt(2, answer["result"]["sessionId"], "wait")))
        await socket._stream.aclose()


async def over_http(server):
    async with http(server) as client:
        remote = await Remote.open(server, client)
        session = await remote.new_session()
        async with remote.stream(session) as messages:
            await remote.post(prompt(2, session, "echo hello"), session)
            while "result" not in await messages.receive():
                pass
        await client.delete("/acp", headers=remote.headers())


async def with_an_agent_that_dies(server):
    async with websocket(server) as socket:
        await ask(socket, initialize())
        answer = await ask(socket, new_session(1))
        await ask(socket, prompt(2, answer["result"]["sessionId"], "die 1"))
        await ask(socket, new_session(3))


def kept_objects():
    """How many objects of each class there are, but those that the flight recorder keeps, and small
    ones in cycles of the MCP bridge and of an HTTP client's mailboxes, which have lines to the end.
    """
    packages = ("chain", "jsonrpc", "plugins", "routing", "server", "supervision", "transport")
    names = tuple(f"conductor.{package}." for package in packages)
    recorded = "conductor.routing.traced_port"
    classes = Counter(type(each) for each in gc.get_objects())
    return Counter(
        {
            kind: count
            for kind, count in classes.items()
            if kind.__module__.startswith(names)
            and kind.__module__ != recorded
            and kind not in (Flusher, Mailbox, Mailboxes)
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chain", "client"),
    [
        *((CHAIN, client) for client in (over_websocket, cut_in_a_turn, over_http)),
        *((PROGRAM_CHAIN, client) for client in (over_websocket, cut_in_a_turn, over_http)),
        (PROGRAM_CHAIN, with_an_agent_that_dies),
    ],
    ids=lambda value: "plugin" if value is CHAIN else getattr(value, "__name__", "program"),
)
async def test_a_client_leaves_nothing_to_the_collector(tmp_path, no_collections, chain, client):
    keep = 0.1 if client is cut_in_a_turn else 60.0
    async with serving(tmp_path, chain=chain, timeouts={"keep": keep}) as server:
        await trio.testing.wait_all_tasks_blocked()
        tasks = trio.lowlevel.current_statistics().tasks_living

        async def come_and_go():
            await client(server)
            while trio.lowlevel.current_statistics().tasks_living > tasks:
                await trio.testing.wait_all_tasks_blocked(0.01)

        await come_and_go()
        before = kept_objects()
        await come_and_go()

        assert kept_objects() - before == Counter()


async def test_what_clients_leave_is_collected_after_a_hundred_of_them(tmp_path, no_collections):
    collected = trio.Event()

    class Left:
        def __init__(self):
            self.cycle = self

    def found(ref):
        collected.set()

    ref = weakref.ref(Left(), found)
    async with serving(tmp_path) as server:
        for _ in range(99):
            async with websocket(server):
                pass
        assert ref() is not None
        async with websocket(server):
            pass
        with trio.fail_after(10):
            await collected.wait()
