"""Between two conductors a cut connection is resumed. On real sockets, through a relay that cuts.

The chain here is `connect`'s: no proxies, and an agent that is elsewhere. The test plays both the
client and, behind the server, the agent; they number what they say.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from http.cookiejar import CookieJar
from itertools import chain
from typing import Any

import attrs
import pytest
import trio
import trio_websocket
from support.remote_agents import reach
from support.server_clients import PATIENCE, refusal, websocket
from support.tcp_relay import Relay, relaying
from trio.testing import wait_all_tasks_blocked

from conductor.background_tasks import background_tasks
from conductor.chain.chain import Chain
from conductor.chain.components import ChainSpec
from conductor.network.address import RemoteAddress
from conductor.network.websocket import WebSocketClosed
from conductor.remote.websocket_connection import open_websocket
from conductor.routing.component import Component
from conductor.server.access import AccessPolicy, read_tokens
from conductor.server.limits import ServerTimeouts
from conductor.server.listen.address import TcpAddress
from conductor.server.run import RunningServer, ServerSettings, open_server
from conductor.testing import FakeClient
from conductor.testing.fakes import FakeComponent
from conductor.transport.base import Transport

pytestmark = pytest.mark.slow


class Numbers(list[int]):
    """Waiters for a count."""

    def __init__(self) -> None:
        self._more = trio.lowlevel.ParkingLot()

    def append(self, number: int) -> None:
        super().append(number)
        self._more.unpark_all()

    async def wait(self, count: int) -> None:
        while len(self) < count:
            await self._more.park()


@attrs.define(eq=False)
class World:
    """A client, the network, and an agent, which says and asks as much as it is told to."""

    server: RunningServer
    relay: Relay
    client: FakeClient
    agents: list[FakeComponent]
    started_again: trio.Event
    """There is a second agent: the first connection was given up."""
    heard_by_agent: Numbers
    heard_by_client: list[int]
    asked_of_client: list[int]

    async def open_session(self) -> str:
        await self.client.initialize()
        return await self.client.new_session("/")

    async def talk(self, session: str, says: int, asks: int, tells: int | None = None) -> None:
        """A turn in which both say and ask so much; at its end, everything has arrived once.

        The client tells as much as the agent says, unless `tells` is given.
        """
        tells = says if tells is None else tells
        numbers = {"says": says, "asks": asks, "tells": tells}
        prompt = {"sessionId": session, "prompt": [], **numbers}
        answers: list[Any] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._count, tells)

            async def turn() -> None:
                answers.append(await self.client.request("session/prompt", prompt))

            nursery.start_soon(turn)
            for number in range(asks):
                answer = await self.client.request("_test/double", {"n": number})
                assert answer == {"n": 2 * number}
        assert answers == [{"stopReason": "end_turn"}]
        assert self.heard_by_client == list(range(says))
        assert self.asked_of_client == list(range(asks))
        assert self.heard_by_agent == list(range(tells))
        assert len(self.agents) == 1, "the agent was started again"

    async def _count(self, upto: int) -> None:
        for number in range(upto):
            self.client.notify("_test/count", {"n": number, "text": "ä" * (number % 50)})
            if number % 20 == 0:
                await trio.lowlevel.checkpoint()


@asynccontextmanager
async def world(
    timeouts: dict[str, float] | None = None,
    budget: Callable[[], float] = lambda: float("inf"),
    ping_timeout: float = PATIENCE,
    access: AccessPolicy | None = None,
    scheme: str = "ws",
    **connect: Any,
) -> AsyncIterator[World]:
    agents: list[FakeComponent] = []
    started_again = trio.Event()
    record_activity = Numbers()
    heard_by_client: list[int] = []
    asked: list[int] = []

    def make_chain(transport: Transport) -> Chain:
        def make() -> list[Component]:
            if agents:
                started_again.set()
            agents.append(_agent(record_activity))
            return [agents[-1]]

        return Chain(transport, ChainSpec(make))

    settings = ServerSettings(
        (TcpAddress("127.0.0.1", 0),),
        access or AccessPolicy(),
        timeouts=ServerTimeouts(**timeouts or {}),
    )
    with trio.fail_after(6 * PATIENCE):
        async with (
            open_server(make_chain, settings) as server,
            relaying(server.addresses[0], budget=budget) as relay,
            reach(
                connect=f"{scheme}://127.0.0.1:{relay.port}",
                ping_timeout=ping_timeout,
                seconds=6 * PATIENCE,
                **connect,
            ) as client,
        ):
            client.handlers["session/update"] = partial(_note, heard_by_client)
            client.handlers["_test/ask"] = partial(_answer, asked)
            yield World(
                server,
                relay,
                client,
                agents,
                started_again,
                record_activity,
                heard_by_client,
                asked,
            )


def _note(record_activity: list[int], params: Any) -> None:
    if "n" in params["update"]:  # not something of the conductor's own
        record_activity.append(params["update"]["n"])


def _answer(asked: list[int], params: Any) -> Any:
    asked.append(params["n"])
    return {"n": params["n"] + 1}


def _agent(record_activity: Numbers) -> FakeComponent:
    agent = FakeComponent("agent", "agent")

    async def prompt(params: Any) -> Any:
        endpoint, session = agent.endpoint, params["sessionId"]

        async def say() -> None:
            for number in range(params["says"]):
                update = {"n": number, "text": "ü" * (number % 60)}
                endpoint.notify("session/update", {"sessionId": session, "update": update})
                if number % 20 == 0:
                    await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(say)
            for number in range(params["asks"]):
                answer = await endpoint.request("_test/ask", {"sessionId": session, "n": number})
                assert answer == {"n": number + 1}
            await record_activity.wait(params["tells"])
        return {"stopReason": "end_turn"}

    agent.handlers.update(
        {
            "initialize": lambda params: {"protocolVersion": 1, "agentCapabilities": {}},
            "session/new": lambda params: {"sessionId": "s1"},
            "session/prompt": prompt,
            "_test/count": lambda params: record_activity.append(params["n"]),
            "_test/double": lambda params: {"n": 2 * params["n"]},
        }
    )
    return agent


SCHEMES = pytest.mark.parametrize("scheme", ["ws", "http"])


@pytest.mark.parametrize("scheme", [pytest.param("ws", marks=pytest.mark.fast), "http"])
async def test_no_message_is_lost_or_doubled_without_connection_loss(scheme):
    async with world(scheme=scheme) as it:
        await it.talk(await it.open_session(), says=1000, asks=40, tells=100)

        assert scheme == "http" or it.relay.connections == 1


@pytest.mark.parametrize(("scheme", "seed"), [("ws", 0), ("ws", 1), ("http", 0)])
async def test_no_message_is_lost_or_doubled_with_frequent_connection_loss(scheme, seed):
    """Each connection is lost after so many bytes, in the middle of a frame or of a handshake."""
    rng = random.Random(seed)

    def some() -> int:
        return rng.randrange(rng.choice([3000, 60000]))

    budgets = chain([5000], [5000] * 3 if scheme == "http" else [], iter(some, None))
    async with world(budget=lambda: next(budgets), scheme=scheme) as it:
        session = await it.open_session()
        await it.talk(session, says=1000, asks=40, tells=1000 if scheme == "ws" else 100)

        assert it.relay.connections > 8


@SCHEMES
async def test_no_message_is_lost_or_doubled_after_a_silent_loss(scheme):
    """No end is told that the connection was cut: both detect it by pings."""
    quick = {"ping_interval": 0.2, "ping_timeout": 0.2}
    async with world(timeouts=quick, ping_timeout=0.4, scheme=scheme) as it:
        session = await it.open_session()
        async with background_tasks() as nursery:
            nursery.start_soon(_pull_cables, it.relay, 3)
            await it.talk(session, says=1500, asks=40, tells=150)

        assert it.relay.connections >= 4


async def _pull_cables(relay: Relay, times: int) -> None:
    for _ in range(times):
        await relay.wait(passed=relay.passed + 20_000)
        relay.stop()
        await relay.wait(connections=relay.connections + 1)
        relay.start()


@pytest.mark.fast
async def test_both_ends_detect_a_silent_loss_in_time():
    quick = {"ping_interval": 0.2, "ping_timeout": 0.2}
    async with world(timeouts=quick, ping_timeout=0.4) as it:
        await it.open_session()
        (client,) = it.server.clients.by_id.values()
        pulled = trio.current_time()
        it.relay.stop()
        await client.detached.wait()
        found = trio.current_time()
        await it.relay.wait(connections=2)
        tried = trio.current_time()
        it.relay.start()

        assert found - pulled < 5
        assert tried - pulled < 5


async def test_a_silent_loss_is_detected_while_writing_is_blocked():
    """The peer always reads: a connection without progress is cut."""
    async with world() as it:
        address = RemoteAddress.from_url(f"ws://127.0.0.1:{it.relay.port}", {}, None)
        async with open_websocket(address, CookieJar(), 1.0, 2**30) as socket:
            socket.peer_always_reads = True
            it.relay.stop()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_expect_closed, socket.send, "x" * 2**24)
                nursery.start_soon(socket.receive)
                await wait_all_tasks_blocked(0.05)  # the kernel takes no more
                await _expect_closed(socket.ping, 0.3)

        assert socket.closed is not None
        assert socket.closed.reason == "it did not answer a ping within 0.3 s"


async def _expect_closed(function: Callable[..., Any], *arguments: Any) -> None:
    with pytest.raises(WebSocketClosed):
        await function(*arguments)


async def test_a_slow_network_closes_no_connection():
    quick = {"ping_interval": 0.2, "ping_timeout": 0.5}
    async with world(timeouts=quick, ping_timeout=1.0) as it:
        it.relay.chunk = 300
        await it.talk(await it.open_session(), says=1000, asks=20)

        assert it.relay.connections == 1


@SCHEMES
async def test_a_server_that_forgot_the_connection_is_gone_for_the_component(scheme):
    """The component's restart policy decides what follows: by default, it is started again."""
    async with world(timeouts={"keep": 0.2}, scheme=scheme) as it:
        session = await it.open_session()
        it.relay.stop()
        it.relay.cut()
        (client,) = it.server.clients.by_id.values()
        await client.ended.wait()
        it.relay.start()
        await it.started_again.wait()
        new = await it.client.new_session("/")

        assert (session, new) == ("s1", "s1")
        assert len(it.server.clients.by_id) == 1


@SCHEMES
async def test_the_end_of_the_client_is_the_end_of_the_servers_chain(scheme):
    async with world(scheme=scheme) as it:
        await it.open_session()
        (client,) = it.server.clients.by_id.values()
        it.client.close()
        await client.ended.wait()

        assert client.ending is not None
        assert client.ending.reason == ("client" if scheme == "ws" else "stopped")


async def test_the_end_of_the_servers_chain_is_told_even_if_the_network_cuts():
    async with world() as it:
        await it.open_session()
        (client,) = it.server.clients.by_id.values()
        it.relay.cut()
        client.chain.stop()
        await client.ended.wait()
        await it.started_again.wait()  # by its restart policy, on a connection of its own


async def test_a_connection_is_not_resumed_without_a_valid_token():
    access = AccessPolicy(tokens=read_tokens(["one:token-of-one-012345"]))
    headers = {"Authorization": "Bearer token-of-one-012345"}
    async with world(access=access, headers=headers) as it:
        await it.open_session()
        (client,) = it.server.clients.by_id.values()
        named = {"acp-connection-id": client.id, "acp-conductor-received": "0"}

        status, text = await refusal(
            it.server, **named, authorization="Bearer wrong-token-0123456789"
        )

        assert (status, client.id in text) == (401, False)
        assert client.attached


async def test_invalid_sequence_numbers_close_the_connection():
    async with world() as it:
        await it.open_session()
        (client,) = it.server.clients.by_id.values()
        named = [("acp-connection-id", client.id), ("acp-conductor-received", "12345")]

        async with websocket(it.server, *named) as socket:
            with pytest.raises(trio_websocket.ConnectionClosed) as caught:
                await socket.get_message()

        assert caught.value.reason.code == 4400
        assert caught.value.reason.reason.startswith("the peer acknowledged 12345")
