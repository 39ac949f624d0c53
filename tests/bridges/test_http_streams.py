"""Streams that are read slowly or not at all: bounded, and without loss while read."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import httpx2
import pytest
import trio
from support.bridge_harness import situation
from support.mcp_providers import Waiting
from support.no_authorities import NO_AUTHORITIES
from support.raw_json import dumps

from bridges import http_streams
from bridges.http_streams import STANDING_STREAM, EventStream

HTTP = {"mcpCapabilities": {"http": True}}
BIG = "x" * 64 * 1024
COUNT = 200
"""Notifications of that size: what no socket buffer takes."""


def stream(name="1"):
    return EventStream(name, lambda changed: None)


def test_delivered_events_are_kept_within_bounds():
    some = stream()
    some.readers = 1
    for number in range(1, 101):
        some.put(b"x" * 64 * 1024 + b"\n")
        some.sent(number)

    assert some.unread == 0
    assert some.size <= http_streams._MAX_REPLAY_BYTES
    assert [number for number, _ in some.after(97)] == [98, 99, 100]


def test_undelivered_events_are_kept_while_the_stream_is_read():
    some = stream()
    some.readers = 1
    for _ in range(100):
        some.put(b"x" * 64 * 1024 + b"\n")

    assert some.slow
    assert len(some.after(0)) == 100
    some.sent(100)
    assert not some.slow


def test_a_stream_that_is_not_read_is_closed():
    some = stream()
    for _ in range(100):
        some.put(b"x" * 64 * 1024 + b"\n")

    assert (some.lost, some.done, some.size, some.after(0)) == (True, True, 0, [])


def test_the_standing_stream_forgets_the_oldest():
    some = stream(STANDING_STREAM)
    for _ in range(100):
        some.put(b"x" * 64 * 1024 + b"\n")

    assert (some.lost, some.done) == (False, False)
    assert some.size <= http_streams._MAX_UNREAD_BYTES
    assert some.after(0)[-1][0] == 100


def test_a_response_is_never_dropped_however_large():
    some = stream()
    some.put(b"x" * 8 * 1024 * 1024 + b"\n", last=True)

    assert len(some.after(0)) == 1


@pytest.fixture
async def calling():
    """A call that waits, over a bare socket; its server has sent much that is unread."""
    waiting = Waiting()
    with trio.fail_after(20):
        async with situation(make=waiting.server, capabilities=HTTP, mode="http") as on:
            [entry] = await on.declare()
            headers = {one["name"]: one["value"] for one in entry["headers"]}
            headers["Mcp-Session-Id"] = await hello(entry["url"], headers)
            place = urlsplit(entry["url"])
            connection = await trio.open_tcp_stream(place.hostname, place.port)
            async with connection:
                call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call"}
                await post(connection, place, headers, {**call, "params": WAIT})
                await waiting.begun.wait()
                yield on, waiting, connection, (entry["url"], headers)


WAIT = {"name": "wait", "arguments": {}, "_meta": {"progressToken": 1}}


async def test_a_reader_that_stops_slows_the_server_down_and_loses_nothing(calling):
    on, _, connection, _ = calling
    flood(on)
    await trio.testing.wait_all_tasks_blocked(0.05)
    [site] = on.bridge._rewriter.http._sites.values()
    [session] = site.sessions.values()
    waiting_bytes = sum(one.unread for one in session.streams.values())

    lines, rest = [], b""
    while len(lines) < COUNT:
        *more, rest = (rest + await connection.receive_some()).split(b"\n")
        lines += [line for line in more if line.startswith(b"data: ")]
    progress = [json.loads(line[6:])["params"]["progress"] for line in lines]

    # Not `size`: that has what the kernel's buffers took, too, and they take more at times.
    assert (
        http_streams._SLOW_READER_BYTES
        < waiting_bytes
        < http_streams._SLOW_READER_BYTES + 2 * len(BIG)
    )
    assert progress == list(range(COUNT))


async def test_the_call_of_a_reader_that_does_not_return_is_cancelled(calling):
    on, waiting, connection, (url, headers) = calling
    await connection.aclose()
    [site] = on.bridge._rewriter.http._sites.values()
    [session] = site.sessions.values()
    await on.until(lambda: not any(one.readers for one in session.streams.values()))
    [name] = session.streams.keys() - {STANDING_STREAM, "1"}
    flood(on)
    await waiting.cancelled.wait()
    async with httpx2.AsyncClient(headers=headers, trust_env=False, verify=NO_AUTHORITIES) as web:
        resumed = await web.get(url, headers={"Last-Event-ID": f"{name}.0"})

    assert resumed.status_code == 404
    assert sum(one.size for one in session.streams.values()) <= http_streams._MAX_REPLAY_BYTES


def flood(on):
    """Progress of the call that waits, much of it."""
    for number in range(COUNT):
        params = {"progressToken": 1, "progress": number, "message": BIG}
        carrier = {"connectionId": "connection-1", "method": "notifications/progress"}
        on.client.notify("mcp/message", {**carrier, "params": params})


async def hello(url, headers):
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    async with httpx2.AsyncClient(headers=headers, trust_env=False, verify=NO_AUTHORITIES) as web:
        answer = await web.post(url, json=message)
        web.headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
        await web.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    return answer.headers["mcp-session-id"]


async def post(connection, place, headers, message):
    body = dumps(message)
    head = [f"POST {place.path} HTTP/1.1", f"Host: {place.netloc}", f"Content-Length: {len(body)}"]
    head += [f"{name}: {value}" for name, value in headers.items()]
    await connection.send_all("\r\n".join([*head, "", ""]).encode() + body)
