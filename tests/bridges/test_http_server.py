"""The SDK's client over Streamable HTTP, and requests without a token."""

from __future__ import annotations

import gc

import pytest
import trio
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult
from support.bridge_harness import situation
from support.mcp_http_client import ACCEPT, HELLO, HTTP, message, web_client
from support.mcp_providers import BINDINGS, asking_old, is_served

from bridges.http_streams import STANDING_STREAM

# httpx2 leaves its response generators to the garbage collector when a stream is given up.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")


@pytest.fixture(autouse=True)
def _garbage():
    yield
    gc.collect()


PAIRS = [("legacy", "both"), ("auto", "both"), ("legacy", "new"), ("auto", "old")]


@pytest.mark.parametrize(
    ("binding", "mode", "era"),
    [(each, *pair) for each in BINDINGS for pair in PAIRS if is_served(each, pair[1])],
)
async def test_tools_are_listed_and_called(binding, mode, era):
    seen = []
    complete = trio.Event()

    async def progressed(progress, total, message):
        seen.append(progress)
        if len(seen) == 2:
            complete.set()

    with trio.fail_after(10):
        async with situation(binding, era=era, capabilities=HTTP, mode="http") as on:
            [entry] = await on.declare()
            async with web_client(entry) as web:
                transport = streamable_http_client(entry["url"], http_client=web)
                async with Client(transport, mode=mode) as client:
                    result = await client.call_tool("add", {"a": 2, "b": 3})
                    await client.call_tool("count", {"to": 2}, progress_callback=progressed)
                    await complete.wait()

    assert entry["type"] == "http"
    assert entry["url"].startswith("http://127.0.0.1:")
    assert result.structured_content == {"result": 5}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 400),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": ""}, 401),
        ({"Host": "evil.example"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Mcp-Session-Id": "unknown"}, 404),
    ],
)
async def test_requests_without_a_token_are_refused(headers, status):
    with trio.fail_after(10):
        async with situation(capabilities=HTTP, mode="http") as on:
            [entry] = await on.declare()
            async with web_client(entry, **headers) as web:
                ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
                answer = await web.post(entry["url"], json=ping)
    assert answer.status_code == status
    assert on.provider.log == []


async def test_an_agent_without_http_gets_stdio():
    async with situation(mode="http") as on:
        [entry] = await on.declare()
    assert "command" in entry


async def test_a_tool_asks_the_user_on_the_stream_of_its_call():
    async def elicit(context, params):
        return ElicitResult(action="accept", content={"ok": True})

    with trio.fail_after(10):
        async with situation(make=asking_old, era="old", capabilities=HTTP, mode="http") as on:
            [entry] = await on.declare()
            async with web_client(entry) as web:
                transport = streamable_http_client(entry["url"], http_client=web)
                async with Client(transport, mode="legacy", elicitation_callback=elicit) as client:
                    result = await client.call_tool("confirm", {})
    assert result.content[0].text == "confirmed: {'ok': True}"


async def test_a_session_is_one_connection_and_ends_with_delete():
    with trio.fail_after(10):
        async with situation(capabilities=HTTP, mode="http") as on:
            [entry] = await on.declare()
            async with web_client(entry, **ACCEPT) as web:
                first = await web.post(entry["url"], json=message("initialize", HELLO))
                second = await web.post(entry["url"], json=message("initialize", HELLO))
                ids = [one.headers["mcp-session-id"] for one in (first, second)]
                web.headers["Mcp-Session-Id"] = ids[0]
                ended = await web.delete(entry["url"])
                later = await web.post(entry["url"], json=message("ping", {}))
            await on.until(lambda: on.provider.methods().count("mcp/disconnect") == 1)
    assert ids[0] != ids[1]
    assert on.provider.methods().count("mcp/connect") == 2
    assert (ended.status_code, later.status_code) == (204, 404)


async def test_a_broken_stream_is_resumed_where_it_broke():
    with trio.fail_after(10):
        async with situation(capabilities=HTTP, mode="http") as on:
            [entry] = await on.declare()
            async with web_client(entry, **ACCEPT) as web:
                hello = await web.post(entry["url"], json=message("initialize", HELLO))
                web.headers["Mcp-Session-Id"] = hello.headers["mcp-session-id"]
                note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
                await web.post(entry["url"], json=note)
                params = {"name": "count", "arguments": {"to": 3}, "_meta": {"progressToken": 1}}
                whole = await web.post(entry["url"], json=message("tools/call", params, 2))
                ids = [line[4:] for line in whole.text.splitlines() if line.startswith("id: ")]
                rest = await web.get(entry["url"], headers={"Last-Event-ID": ids[1]})
    assert len(ids) == 4
    assert whole.text.endswith(rest.text)
    assert rest.text.count("data: ") == 2
    assert "counted to 3" in rest.text


@pytest.mark.parametrize("number", ["\xb2", "9" * 5000, "-1", ""])
async def test_an_event_id_without_a_number_is_unknown(number):
    with trio.fail_after(10):
        async with situation(capabilities=HTTP, mode="http") as on:
            [entry] = await on.declare()
            async with web_client(entry, **ACCEPT) as web:
                hello = await web.post(entry["url"], json=message("initialize", HELLO))
                name = f"{STANDING_STREAM}.{number}".encode("latin-1")
                session = hello.headers["mcp-session-id"].encode()
                headers = [(b"Mcp-Session-Id", session), (b"Last-Event-ID", name)]
                answer = await web.get(entry["url"], headers=headers)
    assert answer.status_code == 404


async def test_the_end_of_an_acp_session_ends_its_servers():
    handlers = {"session/close": lambda params: {}}
    with trio.fail_after(10):
        async with situation(capabilities=HTTP, mode="http", handlers=handlers) as on:
            [entry] = await on.declare()
            async with web_client(entry, **ACCEPT) as web:
                await web.post(entry["url"], json=message("initialize", HELLO))
                await on.client.request("session/close", {"sessionId": "session-1"})
                answer = await web.post(entry["url"], json=message("initialize", HELLO))
    assert answer.status_code == 401
    assert on.provider.methods()[-1] == "mcp/disconnect"
