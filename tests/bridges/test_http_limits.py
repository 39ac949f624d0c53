"""Limits of one MCP client over HTTP: sessions, bodies, open requests."""

from __future__ import annotations

import gc
import json

import pytest
import trio
from support import raw_json
from support.bridge_harness import situation
from support.mcp_http_client import ACCEPT, HELLO, HTTP, message, web_client

from bridges.http_server import McpHttpServer
from bridges.http_session import McpHttpSession
from conductor.bridge_api import Limits

# httpx2 leaves its response generators to the garbage collector when a stream is given up.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")


@pytest.fixture(autouse=True)
def _garbage():
    yield
    gc.collect()


async def room():
    await trio.lowlevel.checkpoint()


async def test_sessions_that_are_abandoned_end_and_one_that_is_used_does_not():
    with trio.fail_after(30):
        async with situation(capabilities=HTTP, mode="http") as on:
            [entry] = await on.declare()
            async with web_client(entry, **ACCEPT) as web:
                hello = await web.post(entry["url"], json=message("initialize", HELLO))
                used = {"Mcp-Session-Id": hello.headers["mcp-session-id"]}
                for _ in range(40):
                    await web.post(entry["url"], json=message("initialize", HELLO))
                    ping = await web.post(entry["url"], json=message("ping", {}), headers=used)
                    assert ping.status_code == 200
            [site] = on.bridge._rewriter.http._sites.values()
            assert len(site.sessions) == Limits().max_mcp_sessions
            [declarations] = on.bridge._sessions.values()
            assert [len(one.mcp_connections) for one in declarations] == [Limits().max_mcp_sessions]
            ended = 41 - Limits().max_mcp_sessions
            await on.until(lambda: on.provider.methods().count("mcp/disconnect") == ended)
            assert len(on.provider.connections) == Limits().max_mcp_sessions
            gc.collect()
            kept = [one for one in gc.get_objects() if isinstance(one, McpHttpSession)]
            assert len(kept) == Limits().max_mcp_sessions


async def test_a_session_with_an_open_stream_does_not_end_for_another():
    with trio.fail_after(10):
        async with situation(capabilities=HTTP, mode="http") as on:
            on.bridge.limits = Limits(max_mcp_sessions=1)
            [entry] = await on.declare()
            async with web_client(entry, **ACCEPT) as web:
                hello = await web.post(entry["url"], json=message("initialize", HELLO))
                used = {"Mcp-Session-Id": hello.headers["mcp-session-id"]}
                async with web.stream("GET", entry["url"], headers=used):
                    refused = await web.post(entry["url"], json=message("initialize", HELLO))
                    ping = await web.post(entry["url"], json=message("ping", {}), headers=used)
    assert (refused.status_code, ping.status_code) == (503, 200)


def chunks(*sizes, pause=0.0):
    """What hypercorn gives of a body."""
    left = list(sizes)

    async def receive():
        await trio.sleep(pause)
        if not left:
            await trio.sleep_forever()
        return {"type": "http.request", "body": b"x" * left.pop(0), "more_body": bool(left)}

    return receive


async def test_a_body_that_goes_on_arriving_is_read(autojump_clock):
    shim_listener = McpHttpServer(room, Limits(max_message_bytes=100))
    assert await shim_listener._body(chunks(50, 50, pause=20)) == b"x" * 100
    assert shim_listener._receiving == 0


async def test_a_body_that_pauses_is_given_up(autojump_clock):
    shim_listener = McpHttpServer(room, Limits(max_message_bytes=100))
    assert await shim_listener._body(chunks(10, 10, pause=31)) == 408
    assert shim_listener._receiving == 0


async def test_a_body_over_the_limit_is_refused():
    shim_listener = McpHttpServer(room, Limits(max_message_bytes=100))
    assert await shim_listener._body(chunks(50, 51, 10)) == 413
    assert shim_listener._receiving == 0


async def test_bodies_share_a_budget(autojump_clock):
    shim_listener = McpHttpServer(room, Limits(max_message_bytes=100))
    results = []

    async def receive(*sizes, pause):
        results.append(await shim_listener._body(chunks(*sizes, pause=pause)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: receive(30, 30, pause=2))
        nursery.start_soon(lambda: receive(30, 30, pause=3))
    assert results == [b"x" * 60, b"x" * 60]  # not both whole at once
    results.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: receive(60, 10, pause=2))
        nursery.start_soon(lambda: receive(60, 10, pause=3))
    assert results == [503, b"x" * 70]
    assert shim_listener._receiving == 0


async def test_clients_that_share_a_session_may_use_the_same_ids():
    """Requests of the newest revision need no session; each gets its own answer."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }
    answers = {}
    with trio.fail_after(20):
        async with situation(capabilities=HTTP, mode="http") as on:
            [entry] = await on.declare()
            async with web_client(entry, **ACCEPT) as web, trio.open_nursery() as nursery:

                async def call(number):
                    params = {"name": "echo", "arguments": {"text": f"n{number}"}, "_meta": meta}
                    answer = await web.post(entry["url"], json=message("tools/call", params, 1))
                    data = [each for each in answer.text.splitlines() if each.startswith("data: ")]
                    answers[number] = json.loads(data[-1][6:])["result"]["content"][0]["text"]

                for number in range(8):
                    nursery.start_soon(call, number)
    assert answers == {number: f"n{number}" for number in range(8)}


async def test_open_requests_are_limited():
    async def never(params):
        await trio.sleep_forever()

    with trio.fail_after(20):
        async with situation(capabilities=HTTP, mode="http") as on:
            on.client.handlers["mcp/connect"] = never
            [entry] = await on.declare()
            on.bridge._rewriter.http.limits = Limits(max_open_requests=2)
            async with web_client(entry, **ACCEPT) as web:
                url = entry["url"]
                async with web.stream("POST", url, json=message("initialize", HELLO)) as hello:
                    used = {"Mcp-Session-Id": hello.headers["mcp-session-id"]}
                    one = web.stream("POST", url, json=message("ping", {}, 2), headers=used)
                    async with one as ping:
                        more = await web.post(url, json=message("ping", {}, 3), headers=used)
    assert (ping.status_code, more.status_code) == (200, 429)
    assert more.json()["id"] == 3


async def test_a_request_is_answered_with_its_id_however_odd_it_is():
    deep = b'{"jsonrpc":"2.0","id":7,"method":"tools/list","params":%b}' % (
        raw_json.nested(raw_json.TOO_DEEP)
    )
    with trio.fail_after(20):
        async with situation(capabilities=HTTP, mode="http") as on:
            [entry] = await on.declare()
            async with web_client(entry, **ACCEPT) as web:
                hello = await web.post(entry["url"], json=message("initialize", HELLO))
                used = {"Mcp-Session-Id": hello.headers["mcp-session-id"]}
                refused = await web.post(entry["url"], content=deep, headers=used)
                odd = await web.post(entry["url"], json=message("", {}, 8), headers=used)
    assert (refused.status_code, refused.json()["id"]) == (400, 7)
    [data] = [each for each in odd.text.splitlines() if each.startswith("data: ")]
    assert json.loads(data[6:])["id"] == 8
