"""The objects of a chain that has ended are freed without a garbage collection."""

from __future__ import annotations

import gc
import weakref

import pytest
import trio.testing
from support.server_clients import ask, initialize, new_session, prompt, request, serving, websocket


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
