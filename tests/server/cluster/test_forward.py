"""Several nodes and one Redis: clients at the wrong node are forwarded to the right one."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio_websocket
import trustme
from support.cluster import COREDIS_FORGETS, directory_at, keeping_chain, lose, open_session, say
from support.external_programs import Program, free_port
from support.raw_json import compact
from support.server_clients import (
    PATIENCE,
    Remote,
    ask,
    http,
    initialize,
    new_session,
    prompt,
    request,
    serving,
    texts,
    websocket,
)
from trio.testing import wait_all_tasks_blocked

from conductor.background_tasks import background_tasks
from conductor.network.tls import server_context
from conductor.server.access import AccessPolicy, read_tokens
from conductor.server.listen.address import TcpAddress
from conductor.server.run import RunningServer

pytestmark = [pytest.mark.external, COREDIS_FORGETS]

ALICE, BOB = "alice-alice-alice-alice", "bob-bob-bob-bob-bob-bob"


@attrs.define
class Nodes:
    """Creates nodes with a shared session store; their agents report the node's name."""

    redis: Program
    directory: Path

    @asynccontextmanager
    async def serve(self, name: str, **settings: Any) -> AsyncIterator[RunningServer]:
        place = self.directory / name
        place.mkdir()
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        async with serving(
            place,
            chain=keeping_chain(self.directory, name),
            listen=(TcpAddress("127.0.0.1", port),),
            # The default lookup timeout is short: on a busy machine, a node would work alone.
            directory=directory_at(self.redis, url, lookup_timeout=PATIENCE),
            **settings,
        ) as server:
            yield server

    @asynccontextmanager
    async def two(self, **settings: Any) -> AsyncIterator[tuple[RunningServer, RunningServer]]:
        async with self.serve("a", **settings) as a, self.serve("b", **settings) as b:
            yield a, b


@pytest.fixture
def nodes(redis: Program, tmp_path: Path) -> Nodes:
    return Nodes(redis, tmp_path)


@asynccontextmanager
async def moved(remote: Remote, server: RunningServer, version: int = 2) -> AsyncIterator[Remote]:
    """The same connection, by way of another server."""
    async with http(server, version) as client:
        yield Remote(client, remote.id, lambda: http(server, version))


async def told(messages: trio.MemoryReceiveChannel[Any]) -> str:
    return "".join(texts([await messages.receive()]))


def id_of(socket: trio_websocket.WebSocketConnection) -> str:
    return dict(socket.handshake_headers)[b"acp-connection-id"].decode()


@pytest.mark.parametrize("version", [1, 2])
async def test_an_http_connection_works_from_every_server(nodes, version):
    async with nodes.two() as (a, b), http(a, version) as client:
        at_a = await Remote.open(a, client, version)
        async with moved(at_a, b, version) as at_b:
            session = await at_b.new_session()
            async with at_b.stream(session) as messages:
                accepted = await at_b.post(prompt(2, session, "hello"), session)
                said = await told(messages)
                answer = await messages.receive()
            ended = await at_b.client.delete("/acp", headers=at_b.headers())
        (gone,) = a.clients.by_id.values() or [None]
        if gone is not None:
            await gone.ended.wait()

    assert (accepted.status_code, ended.status_code) == (202, 202)
    assert said == "a: hello"
    assert answer["result"] == {"stopReason": "end_turn"}
    assert b.clients.by_id == {}


async def test_a_refusal_of_the_owner_is_forwarded(nodes):
    async with nodes.two() as (a, b), http(a) as client:
        at_a = await Remote.open(a, client)
        async with moved(at_a, b) as at_b, at_b.stream() as messages:
            posted = await at_b.post(prompt(1, "no-such-session", "x"), "no-such-session")
            unknown = await anext(messages)
            second = await at_b.get()

    assert (posted.status_code, unknown["error"]["message"]) == (202, "Unknown session")
    assert second == 409


async def test_an_abandoned_stream_can_be_opened_again(nodes):
    async with nodes.two() as (a, b), http(a) as client:
        at_a = await Remote.open(a, client)
        async with moved(at_a, b) as at_b:
            async with at_b.stream():
                pass
            with trio.fail_after(5):
                while await at_a.get() == 409:
                    await trio.lowlevel.checkpoint()


async def test_credentials_are_checked_by_both(nodes):
    access = AccessPolicy(tokens=read_tokens([f"alice:{ALICE}", f"bob:{BOB}"]))
    alice, bob = ({"authorization": f"Bearer {token}"} for token in (ALICE, BOB))
    async with nodes.two(access=access) as (a, b), http(a, headers=alice) as client:
        at_a = await Remote.open(a, client)
        session = at_a.headers(), new_session(1)
        async with http(b) as nobody:
            refused = await nobody.post("/acp", json=session[1], headers=session[0])
        async with http(b, headers=bob) as other:
            unknown = await other.post("/acp", json=session[1], headers=session[0])
        async with http(b, headers=alice) as same:
            accepted = await same.post("/acp", json=session[1], headers=session[0])

    assert refused.status_code == 401
    assert (unknown.status_code, unknown.text) == (404, "Unknown Acp-Connection-Id")
    assert accepted.status_code == 202


async def test_a_client_with_a_certificate_is_redirected(nodes, tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    ours = authority.issue_cert("127.0.0.1")
    client_cert = authority.issue_cert("alice@example.org", common_name="alice")
    ours.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "ours.pem"))
    both = str(tmp_path / "ours.pem")
    settings = {
        "tls": server_context(both, both, str(tmp_path / "ca.pem")),
        "access": AccessPolicy(certificates=True),
    }
    tls = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    client_cert.configure_cert(tls)
    async with nodes.two(**settings) as (a, b), http(a, verify=tls) as client:
        at_a = await Remote.open(a, client)
        async with http(b, verify=tls) as other:
            response = await other.post("/acp", json=new_session(1), headers=at_a.headers())
        owner = a.clients.directory.advertise

    assert (response.status_code, response.headers["location"]) == (307, f"{owner}/acp")


async def test_a_forwarded_request_is_not_forwarded_again(nodes):
    async with nodes.two() as (a, b), http(a) as client:
        at_a = await Remote.open(a, client)
        async with moved(at_a, b) as at_b:
            headers = at_b.headers(via="1.1 acp-conductor")
            response = await at_b.client.post("/acp", json=new_session(1), headers=headers)

    assert response.status_code == 404


async def test_initialize_is_never_forwarded(nodes):
    async with nodes.two() as (a, b), http(a) as client:
        at_a = await Remote.open(a, client)
        async with http(b) as other:
            response = await other.post("/acp", json=initialize(), headers=at_a.headers())

        assert response.headers["acp-connection-id"] in b.clients.by_id


@pytest.mark.parametrize("named_by", ["header", "cookie"])
async def test_a_websocket_that_reconnects_to_another_node_is_tunnelled(nodes, named_by):
    async with nodes.two() as (a, b):
        async with websocket(a) as first:
            session = await open_session(first)
            assert await say(first, session, "one") == "a: one"
            connection = id_of(first)
            await lose(first)
        name = {
            "header": ("acp-connection-id", connection),
            "cookie": ("cookie", f"other=1; acp_connection={connection}"),
        }[named_by]
        async with websocket(b, name) as second:
            await ask(second, initialize())
            loaded = await ask(second, request(1, "session/load", **load(session)))
            assert "result" in loaded
            assert await say(second, session, "two") == "a: one two"

        assert b.clients.by_id == {}


@asynccontextmanager
async def used_before(
    server: RunningServer, *headers: tuple[str, str]
) -> AsyncIterator[trio_websocket.WebSocketConnection]:
    """A WebSocket over a connection that had an HTTP request first, as load balancers may have."""
    port = int(server.addresses[0].split(":")[2].removesuffix("/acp"))
    async with (
        background_tasks() as nursery,
        await trio.open_tcp_stream("127.0.0.1", port) as stream,
    ):
        await stream.send_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answer = b""
        while not answer.endswith(b"\r\n\r\nok"):
            answer += await stream.receive_some()
        extra = [(name.encode(), value.encode()) for name, value in headers]
        socket = await trio_websocket.wrap_client_stream(
            nursery, stream, "localhost", "/acp", extra_headers=extra
        )
        yield socket
        await socket.aclose()


async def test_a_websocket_accepted_by_hypercorn_is_tunnelled_too(nodes):
    async with nodes.two() as (a, b):
        async with websocket(a) as first:
            session = await open_session(first)
            connection = ("acp-connection-id", id_of(first))
            await lose(first)
        async with used_before(b, connection) as second:
            assert id_of(second) == connection[1]
            await ask(second, initialize())
            assert "result" in await ask(second, request(1, "session/load", **load(session)))
            assert await say(second, session, "one") == "a: one"
            await lose(second)
        (client,) = a.clients.by_id.values()
        while client.attached:
            await trio.lowlevel.checkpoint()
        assert not client.ended.is_set(), "it was lost, not closed"

        async with used_before(b, connection) as third:
            await ask(third, initialize())
            assert "result" in await ask(third, request(1, "session/load", **load(session)))
            assert await say(third, session, "two") == "a: one two"
        assert b.clients.by_id == {}


async def test_a_websocket_accepted_by_hypercorn_is_served_locally_if_the_owner_refuses(nodes):
    async with nodes.two() as (a, b), websocket(a) as first:
        await open_session(first)
        a.clients.draining = True
        async with used_before(b, ("acp-connection-id", id_of(first))) as second:
            assert await say(second, await open_session(second), "hi") == "b: hi"


async def test_a_forwarded_websocket_ends_as_the_client_ends_it(nodes):
    async with nodes.two() as (a, b), websocket(a) as first:
        await open_session(first)
        async with websocket(b, ("acp-connection-id", id_of(first))) as second:
            await open_session(second)
            forwarded = a.clients.by_id[id_of(second)]

        with trio.fail_after(5):
            await forwarded.ended.wait()


async def test_a_websocket_to_a_draining_node_is_served_locally(nodes):
    async with nodes.two() as (a, b), websocket(a) as first:
        await open_session(first)
        a.clients.draining = True
        async with websocket(b, ("acp-connection-id", id_of(first))) as second:
            session = await open_session(second)
            assert await say(second, session, "hello") == "b: hello"


async def test_a_session_that_is_open_elsewhere_is_not_loaded_twice(nodes):
    async with nodes.two() as (a, b), websocket(a) as first, websocket(b) as second:
        session = await open_session(first)
        await ask(second, initialize())

        refused = await ask(second, request(1, "session/load", **load(session)))
        resumed = await ask(second, request(2, "session/resume", **load(session)))

        where = a.addresses[0]
        assert refused["error"]["code"] == -32050
        assert refused["error"]["data"] == {"sessionId": session, "owner": where}
        assert where in refused["error"]["message"]
        assert resumed["error"] == refused["error"]
        assert await say(first, session, "still here") == "a: still here"


async def test_a_lone_surrogate_in_the_params_does_not_load_a_session_twice(nodes):
    """msgspec refuses lone surrogates; unreadable params are refused."""
    async with nodes.two() as (a, b), websocket(a) as first, websocket(b) as second:
        session = await open_session(first)
        await ask(second, initialize())
        half = await ask(second, request(1, "session/load", **load(session), _meta="\ud83d"))
        listed = await ask(second, request(2, "session/load", **{**load(session), "sessionId": []}))

    assert half["error"]["code"] == -32050
    assert listed["error"]["code"] == -32602


async def test_a_session_that_ended_elsewhere_is_loaded(nodes):
    async with nodes.two() as (a, b), websocket(b) as second:
        async with websocket(a) as first:
            session = await open_session(first)
            assert await say(first, session, "one") == "a: one"
            (client,) = a.clients.by_id.values()
        await client.ended.wait()
        await ask(second, initialize())
        await published(a)

        loaded = await ask(second, request(1, "session/load", **load(session)))

        assert "result" in loaded
        assert await say(second, session, "two") == "b: one two"


async def test_a_session_of_another_principal_is_not_found_in_the_cluster(nodes):
    access = AccessPolicy(tokens=read_tokens([f"alice:{ALICE}", f"bob:{BOB}"]))
    alice, bob = (("authorization", f"Bearer {token}") for token in (ALICE, BOB))
    async with nodes.two(access=access) as (a, b), websocket(a, alice) as first:
        session = await open_session(first)
        async with websocket(b, bob) as second:
            await ask(second, initialize())
            answer = await ask(second, request(1, "session/load", **load(session)))

    assert "owner" not in json.dumps(answer)


async def test_without_redis_every_node_works_alone(nodes, redis):
    async with nodes.two() as (a, b), websocket(a) as first, http(b) as client:
        session = await open_session(first)
        assert (await client.get("/ready")).text == "ready"
        redis.end()

        with trio.fail_after(5):
            unknown = await Remote(client, id_of(first), lambda: http(b)).post(new_session(1))
            assert unknown.status_code == 404
            ready = await client.get("/ready")
            assert (ready.status_code, ready.text) == (200, "ready; no sessions of others")
            async with websocket(b) as second:
                assert await say(second, await open_session(second), "hi") == "b: hi"
            assert await say(first, session, "hello") == "a: hello"


@pytest.mark.parametrize("profile", ["websocket", "http"])
async def test_back_pressure_reaches_the_agent_through_two_nodes(nodes, profile):
    size, pieces = 64 * 1024, 1000
    async with nodes.two() as (a, b):
        received = 0
        if profile == "websocket":
            async with websocket(a) as first:
                await open_session(first)
                options: dict[str, Any] = {"message_queue_size": 1, "receive_buffer_size": 65536}
                name = ("acp-connection-id", id_of(first))
                async with websocket(b, name, **options) as second:
                    session = await open_session(second)
                    text = f"flood {size} {pieces}"
                    await second.send_message(compact(prompt("turn", session, text)))
                    told_to_agent = await settled(a)
                    while json.loads(await second.get_message()).get("id") != "turn":
                        received += 1
        else:
            async with http(a, 1) as client:
                at_a = await Remote.open(a, client, 1)
                async with moved(at_a, b, 1) as at_b:
                    session = await at_b.new_session()
                    headers = at_b.headers(session, accept="text/event-stream")
                    async with at_b.client.stream("GET", "/acp", headers=headers) as stream:
                        await at_b.post(prompt("turn", session, f"flood {size} {pieces}"), session)
                        told_to_agent = await settled(a)
                        async for line in stream.aiter_lines():
                            if '"turn"' in line:
                                await at_b.client.delete("/acp", headers=at_b.headers())
                            else:
                                received += line.startswith("data:")

    assert received == pieces
    assert told_to_agent < pieces / 2


async def settled(server: RunningServer) -> int:
    """How much the agent of the newest client has said when it says no more for now."""
    agent = list(server.clients.by_id.values())[-1].chain.components[-1].plugin  # type: ignore
    sent = -1
    while sent != agent.sent or not sent:
        sent = agent.sent
        await wait_all_tasks_blocked(0.1)
    return int(sent)


def load(session: str) -> dict[str, Any]:
    return {"sessionId": session, "cwd": "/", "mcpServers": []}


async def published(server: RunningServer) -> None:
    directory = server.clients.directory
    assert directory is not None
    await directory.wait_published()
