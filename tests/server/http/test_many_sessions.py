"""One connection of our own client over Streamable HTTP, with many sessions one after the other."""

from __future__ import annotations

import gc
import random
from typing import Any

import pytest
from support.remote_agents import reach
from support.server_clients import serving
from support.tcp_relay import relaying

from conductor.network.sequence_numbers import ReceiveWindow
from conductor.server.http.mailboxes import Mailbox

pytestmark = pytest.mark.slow


def alive(kind: type) -> int:
    gc.collect()
    return sum(type(each) is kind for each in gc.get_objects())


async def use_a_session(client: Any) -> None:
    session = await client.new_session("/tmp")
    await client.prompt(session, f"say {session}")
    assert client.transcript.text(session) == session
    await client.request("session/close", {"sessionId": session})


async def test_sessions_that_were_closed_leave_nothing_behind_at_either_end(tmp_path):
    """With room for two streams at a time."""
    async with (
        serving(tmp_path, limits={"streams": 2}) as server,
        reach(connect=server.addresses[0]) as client,
    ):
        await client.initialize()
        for _ in range(20):
            await use_a_session(client)
        # The connection's own remain; the last acknowledgement may still be on its way.
        while alive(Mailbox) > 1 or alive(ReceiveWindow) > 1:
            await client.request("session/list", {})


async def test_sessions_beyond_the_stream_limit_are_served(tmp_path):
    async with (
        serving(tmp_path, limits={"streams": 2}) as server,
        reach(connect=server.addresses[0]) as client,
    ):
        await client.initialize()
        sessions = [await client.new_session("/tmp") for _ in range(5)]
        for session in sessions:
            await client.prompt(session, f"say {session}")

    assert [client.transcript.text(session) for session in sessions] == sessions


@pytest.mark.parametrize("seed", range(3))
async def test_connection_losses_lose_no_messages_of_short_sessions(tmp_path, seed):
    rng = random.Random(seed)
    first = [5000] * 4
    async with (
        serving(tmp_path, limits={"streams": 3}) as server,
        relaying(
            server.addresses[0], budget=lambda: first.pop() if first else rng.randrange(20_000)
        ) as relay,
        reach(connect=f"http://127.0.0.1:{relay.port}") as client,
    ):
        await client.initialize()
        for _ in range(5):
            await use_a_session(client)

        assert relay.connections > 5


async def test_a_session_may_be_loaded_again_as_soon_as_it_is_closed(tmp_path):
    async with (
        serving(tmp_path, limits={"streams": 2}) as server,
        reach(connect=server.addresses[0]) as client,
    ):
        await client.initialize()
        session = await client.new_session("/tmp")
        for turn in range(1, 11):
            await client.prompt(session, f"say {turn}")
            await client.request("session/close", {"sessionId": session})
            params = {"sessionId": session, "cwd": "/tmp", "mcpServers": []}
            await client.request("session/resume", params)

    assert client.transcript.text(session) == "".join(map(str, range(1, 11)))
