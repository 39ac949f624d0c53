"""Limits of a client, and errors when it exceeds them. Other clients are not affected."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import httpx2
import pytest
import trio
from support.server_clients import (
    Remote,
    ask,
    connect,
    http,
    initialize,
    new_session,
    prompt,
    refusal,
    serving,
    texts,
    websocket,
)
from trio.testing import wait_all_tasks_blocked

from conductor.server.access import AccessPolicy, read_tokens

ANN, BOB = "a" * 32, "b" * 32
TOKENS = AccessPolicy(tokens=read_tokens([f"ann:{ANN}", f"bob:{BOB}"]))


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def test_a_client_over_the_limit_gets_retry_after(tmp_path):
    async with serving(tmp_path, limits={"clients": 1}) as server, websocket(server) as socket:
        await ask(socket, initialize())
        async with http(server) as client:
            refused = await client.post("/acp", json=initialize())
            ready = await client.get("/ready")

    assert (refused.status_code, refused.text) == (503, "too many clients")
    assert refused.headers["retry-after"] == "5"
    assert ready.status_code == 503


async def test_a_detached_client_makes_room_for_a_new_one(tmp_path):
    async with serving(tmp_path, limits={"clients": 1}) as server:
        async with websocket(server) as socket:
            await ask(socket, initialize())
            (old,) = server.clients.by_id.values()
            await socket._stream.aclose()
            await old.detached.wait()
        async with websocket(server) as socket:
            assert (await ask(socket, initialize()))["id"] == 0
        await old.ended.wait()


async def test_clients_of_one_address_are_limited(tmp_path):
    async with (
        serving(tmp_path, limits={"clients_each": 1}, access=TOKENS) as server,
        http(server) as client,
    ):
        statuses = [
            (await client.post("/acp", json=initialize(), headers=bearer(token))).status_code
            for token in (ANN, BOB)
        ]

    assert statuses == [200, 429]


async def test_sockets_of_one_address_are_limited(tmp_path):
    async with (
        serving(tmp_path, limits={"sockets_each": 2}, timeouts={"headers": 60}) as server,
        websocket(server),
        http(server, 1) as client,
    ):
        assert (await client.get("/health")).status_code == 200
        async with await connect(server) as third:
            assert await third.receive_some() == b""


async def test_streams_of_one_connection_are_limited(tmp_path):
    async with serving(tmp_path, limits={"streams": 2}) as server, http(server) as client:
        remote = await Remote.open(server, client)
        async with remote.stream("a"), remote.stream("b"):
            assert await remote.get("c") == 429
        while (status := await remote.get("c")) == 429:
            pass  # the server has not noticed yet that they are gone

    assert status == 200


async def test_a_session_beyond_the_stream_limit_uses_the_connections_stream(tmp_path):
    async with serving(tmp_path, limits={"streams": 1}) as server, http(server) as client:
        remote = await Remote.open(server, client)
        first, second = await remote.new_session(), await remote.new_session()
        async with remote.stream() as connection, remote.stream(first):
            assert await remote.get(second) == 429
            await remote.post(prompt(2, second, "say hello"), second)
            got = []
            while not got or got[-1].get("id") != 2:
                got.append(await connection.receive())

    assert list(texts(got)) == ["hello"]


async def test_unread_messages_are_bounded_and_not_lost(tmp_path):
    async with (
        serving(tmp_path, limits={"buffered_bytes": 10_000}) as server,
        http(server) as client,
    ):
        remote = await Remote.open(server, client)
        session = await remote.new_session()
        await remote.post(prompt(2, session, "stream 2000 1000"), session)
        streamable = next(iter(server.clients.by_id.values()))
        await wait_all_tasks_blocked(0.05)  # the agent waits for room
        assert streamable.busy
        async with remote.stream(session) as messages:
            got = []
            while not got or got[-1].get("id") != 2:
                got.append(await messages.receive())

    assert sum(map(len, texts(got))) == 2_000_000


async def test_the_session_of_another_connection_is_refused(tmp_path):
    """Test agents number their sessions: what counts is the connection that a session is of."""
    async with serving(tmp_path) as server, http(server) as client:
        ann, bob = await Remote.open(server, client), await Remote.open(server, client)
        session = await ann.new_session()
        async with bob.stream() as connection:
            await bob.post(prompt(2, session, "say hello"), session)
            answer = await connection.receive()

    assert answer["error"]["message"] == "Unknown session"


async def test_messages_of_an_unknown_session_cannot_be_acknowledged(tmp_path):
    async with serving(tmp_path) as server, http(server) as client:
        remote = await Remote.open(server, client)
        headers = remote.headers("unknown", **{"acp-conductor-received": "0"})
        acknowledged = await client.post("/acp", headers=headers)

    assert acknowledged.status_code == 404


@pytest.mark.parametrize("authorization", [{}, bearer("c" * 32)])
async def test_only_health_and_ready_need_no_token(tmp_path, authorization):
    async with serving(tmp_path, access=TOKENS) as server, http(server) as client:
        refused = await client.post("/acp", json=initialize(), headers=authorization)
        upgrade = await refusal(server, **authorization)
        health = await client.get("/health", headers={"host": "10.0.0.1"})
        ready = await client.get("/ready")

    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == 'Bearer realm="acp"'
    assert upgrade[0] == 401
    assert (health.status_code, health.text) == (200, "ok")
    assert (ready.status_code, ready.text) == (200, "ready")


async def test_a_page_of_an_allowed_origin_may_read_the_answers(tmp_path):
    page = {"origin": "https://app.example.org"}
    access = AccessPolicy(origins=frozenset(page.values()))
    async with serving(tmp_path, access=access) as server, http(server) as client:
        asked = {**page, "access-control-request-method": "POST"}
        preflight = await client.options("/acp", headers=asked)
        answer = await client.post("/acp", json=initialize(), headers=page)
        foreign = await client.options("/acp", headers={"origin": "https://evil.example"})

    assert preflight.status_code == 204
    for response in (preflight, answer):
        assert response.headers["access-control-allow-origin"] == page["origin"]
        assert response.headers["vary"] == "Origin"
    assert foreign.status_code == 403
    assert "access-control-allow-origin" not in foreign.headers


async def test_an_idle_client_is_ended(tmp_path):
    async with (
        serving(tmp_path, timeouts={"idle": 0.2, "keep": 0.4}) as server,
        websocket(server) as socket,
    ):
        await ask(socket, initialize())
        (client,) = server.clients.by_id.values()
        await client.ended.wait()


async def test_a_slow_head_or_body_times_out(tmp_path):
    async with serving(tmp_path, timeouts={"headers": 0.2}) as server:
        async with await connect(server) as head:
            await head.send_all(b"POST /acp HT")
            assert await head.receive_some() == b""
        async with await connect(server) as body:
            await body.send_all(
                b"POST /acp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 10\r\n\r\n{"
            )
            assert (await body.receive_some()).startswith(b"HTTP/1.1 408 ")


async def test_a_head_that_is_too_long_is_refused(tmp_path):
    async with (
        serving(tmp_path, limits={"header_bytes": 1000}) as server,
        await connect(server) as stream,
    ):
        await stream.send_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 2000)
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 431 ")


async def test_the_total_size_of_bodies_is_limited(tmp_path):
    async with serving(tmp_path, limits={"body_bytes": 1000}) as server, http(server) as client:
        refused = await client.post("/acp", json=prompt(1, "s", "x" * 2000))
        accepted = await client.post("/acp", json=initialize())

    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert accepted.status_code == 200


async def test_a_refused_body_does_not_close_a_shared_connection(tmp_path):
    """Over HTTP/2, where hypercorn gives up on data for a request that was answered."""
    async with serving(tmp_path, access=TOKENS) as server, http(server) as client:
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(_post_unasked, client)
            for _ in range(10):
                response = await client.post("/acp", json=initialize(), headers=bearer(ANN))
                assert response.status_code == 200
        server.clients.kill()


async def _post_unasked(client: httpx2.AsyncClient) -> None:
    response = await client.post("/acp", content=b"x" * 200_000)
    assert response.status_code == 401


async def test_unread_lines_stay_for_the_next_reader(tmp_path):
    """All messages except those in flight."""
    async with serving(tmp_path) as server, http(server) as client:
        remote = await Remote.open(server, client)
        session = await remote.new_session()
        await remote.post(prompt(2, session, "stream 3000 1000"), session)
        (ours,) = server.clients.by_id.values()
        named = "".join(f"{name}: {value}\r\n" for name, value in remote.headers(session).items())
        async with await connect(server, receive_buffer=4096) as first:
            accept = "Host: localhost\r\nAccept: text/event-stream\r\n"
            await first.send_all(f"GET /acp HTTP/1.1\r\n{accept}{named}\r\n".encode())
            await first.receive_some(100)
            await wait_all_tasks_blocked(0.05)  # the first reader gets no more
        await ours.detached.wait()
        async with remote.stream(session) as messages:
            got: list[Any] = []
            while not got or got[-1].get("id") != 2:
                got.append(await messages.receive())

    assert len(list(texts(got))) > 2000


@pytest.mark.parametrize(
    "beginning", [b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /acp HTTP/1.1\r\n"]
)
async def test_random_bytes_do_not_affect_other_clients(tmp_path, beginning):
    chance = random.Random(7)
    async with serving(tmp_path, timeouts={"headers": 0.2}) as server, websocket(server) as other:
        await ask(other, initialize())
        for _ in range(20):
            async with await connect(server) as stream:
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(beginning + chance.randbytes(chance.randrange(300)))
                    await stream.send_eof()
                    async for _ in stream:
                        pass
        async with http(server) as client:
            assert (await client.get("/health")).status_code == 200
        assert "result" in await ask(other, new_session(1))
