"""An agent behind an SDK's HTTP and WebSocket server is, by `acp-conductor connect`, the agent."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import trio
from support.remote_agents import program, reach

from conductor.testing import FakeClient

from .programs import HERE
from .summaries import remote


@pytest.fixture
def server(peer) -> Callable[[str], AbstractContextManager[str]]:
    """One of the servers, for as long as a block lasts: its host and port."""

    @contextmanager
    def server(name: str) -> Iterator[str]:
        command = {
            "py_agent": [sys.executable, str(HERE / "py_server.py")],  # HTTP/2 with prior knowledge
            "ts_agent": peer("ts_server"),  # HTTP/1.1
        }[name]
        with program(*command) as (_, port):
            yield f"127.0.0.1:{port}"

    return server


@pytest.mark.parametrize(
    ("client", "agent", "scheme"),
    [("py_client", "ts_agent", "ws"), ("ts_client", "py_agent", "http")],
)
def test_an_agent_behind_connect_behaves_as_the_agent_alone(
    alone, check_same, conductor, converse, peer, server, scheme, client, agent
):
    with server(agent) as address:
        summary = converse(peer(client), [*conductor("connect"), f"{scheme}://{address}"])

    check_same(remote(summary), remote(alone(peer(client), peer(agent))))


@pytest.mark.parametrize("scheme", ["http", "ws"])
@pytest.mark.parametrize("agent", ["py_agent", "ts_agent"])
async def test_one_session_is_cancelled_while_others_go_on(server, scheme, agent):
    stopped = []

    async def wait(client: FakeClient, session: str) -> None:
        stopped.append((await client.prompt(session, "wait"))["stopReason"])

    with server(agent) as address:
        async with reach(connect=f"{scheme}://{address}") as client, trio.open_nursery() as nursery:
            await client.initialize()
            first, *others = [await client.new_session("/tmp") for _ in range(3)]
            nursery.start_soon(wait, client, first)
            while "you said: wait" not in client.transcript.text(first):
                await trio.lowlevel.checkpoint()
            for session in others:
                answer = await client.prompt(session, "hello")
                stopped.append(answer["stopReason"])
            client.cancel(first)

    assert stopped == ["end_turn", "end_turn", "cancelled"]
    assert [client.transcript.text(each) for each in others] == ["you said: helloHello!"] * 2
