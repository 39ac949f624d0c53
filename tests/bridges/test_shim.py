"""The SDK's client on a really spawned shim, the SDK's server behind each binding."""

from __future__ import annotations

import itertools
import os
import signal
import stat

import pytest
import trio
from mcp.types import ElicitResult
from support.bridge_harness import (
    initialize,
    mcp_client,
    receive,
    receive_all,
    request,
    send,
    shim,
    situation,
)
from support.mcp_providers import BINDINGS, Waiting, asking_new, asking_old

from conductor.errors import RequestError

# mode of the client, era of the server: every pair that does not agree is translated
PAIRS = [
    ("legacy", "both"),
    ("auto", "both"),
    ("legacy", "old"),
    ("auto", "new"),
    ("2026-07-28", "new"),
    ("legacy", "new"),
    ("auto", "old"),
    ("2026-07-28", "old"),
]


def cases(*, all_are_fast):
    """Binding, mode and era; the fast ones are each pair with one binding, and one pair with each.

    The stateless binding carries only 2026-07-28.
    """
    for binding, (mode, era) in itertools.product(BINDINGS, PAIRS):
        if (binding, era) != ("stateless", "old"):
            is_fast = all_are_fast or binding == BINDINGS[0] or (mode, era) == ("legacy", "new")
            yield pytest.param(binding, mode, era, marks=() if is_fast else pytest.mark.slow)


EACH_PAIR = pytest.mark.parametrize(("binding", "mode", "era"), list(cases(all_are_fast=True)))
MOSTLY_ONE_BINDING = pytest.mark.parametrize(
    ("binding", "mode", "era"), list(cases(all_are_fast=False))
)


@EACH_PAIR
async def test_tools_are_listed_and_called(binding, mode, era):
    async with situation(binding, era=era) as on:
        [entry] = await on.declare()
        async with mcp_client(entry, mode=mode) as client:
            tools = await client.list_tools()
            result = await client.call_tool("add", {"a": 2, "b": 3})

        assert [tool.name for tool in tools.tools] == ["add", "count", "echo"]
        assert result.structured_content == {"result": 5}


@MOSTLY_ONE_BINDING
async def test_progress_reaches_the_client(binding, mode, era):
    seen = []
    complete = trio.Event()  # the SDK runs callbacks in tasks of their own

    async def progressed(progress, total, message):
        seen.append((progress, total))
        if len(seen) == 3:
            complete.set()

    async with situation(binding, era=era) as on:
        [entry] = await on.declare()
        async with mcp_client(entry, mode=mode) as client:
            result = await client.call_tool("count", {"to": 3}, progress_callback=progressed)
            with trio.fail_after(5):
                await complete.wait()

        assert result.content[0].text == "counted to 3"
        assert sorted(seen) == [(1, 3), (2, 3), (3, 3)]


@MOSTLY_ONE_BINDING
async def test_a_tool_asks_the_user(binding, mode, era):
    asked = []

    async def elicit(context, params):
        asked.append(params.message)
        return ElicitResult(action="accept", content={"ok": True})

    make = asking_old if era == "old" or (mode, era) == ("legacy", "both") else asking_new
    async with situation(binding, make, era=era) as on:
        [entry] = await on.declare()
        async with mcp_client(entry, mode=mode, elicitation_callback=elicit) as client:
            if (binding, mode, era) == ("stateless", "legacy", "both"):
                return  # what this server would ask cannot travel in the stateless binding
            result = await client.call_tool("confirm", {})

        assert result.content[0].text == "confirmed: {'ok': True}"
        assert asked == ["Really?"]


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_cancelled_call_is_cancelled_at_the_server(binding):
    waiting = Waiting()
    async with situation(binding, waiting.server) as on:
        [entry] = await on.declare()
        async with mcp_client(entry, mode="auto") as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "wait", {})
                await waiting.begun.wait()
                nursery.cancel_scope.cancel()
            with trio.fail_after(5):
                await waiting.cancelled.wait()

            result = await client.call_tool("add", {"a": 1, "b": 1})
            assert result.structured_content == {"result": 2}


@pytest.mark.slow
@pytest.mark.parametrize("binding", BINDINGS)
async def test_twelve_megabytes_come_through_both_ways(binding):
    """More than every buffer on the way. With bare pipes: the SDK's client takes quadratic time for
    a long line."""
    text = "x" * (12 * 1024 * 1024)
    async with situation(binding) as on:
        [entry] = await on.declare()
        async with shim(entry) as process:
            await initialize(process)
            call = {"name": "echo", "arguments": {"text": text}}
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send, process, 2, "tools/call", call)
                answer = await receive(process)

        assert answer["result"]["content"] == [{"type": "text", "text": text}]


async def test_every_shim_of_a_declaration_is_a_connection_of_its_own():
    async with situation() as on:
        [entry] = await on.declare()
        async with mcp_client(entry, mode="auto") as one, mcp_client(entry, mode="legacy") as two:
            first = await one.call_tool("add", {"a": 1, "b": 1})
            second = await two.call_tool("add", {"a": 2, "b": 2})

        assert (first.structured_content, second.structured_content) == (
            {"result": 2},
            {"result": 4},
        )
        assert on.provider.methods().count("mcp/connect") == 2
        await on.until(lambda: on.provider.methods().count("mcp/disconnect") == 2)
        assert on.provider.connections == {}


async def test_nothing_connects_before_a_shim_does():
    async with situation() as on:
        await on.declare()
        assert on.provider.log == []


async def test_a_shim_may_start_before_the_session_is_answered():
    """Four of seven agents start their MCP servers first, and answer `session/new` after."""
    tools = []

    async def new_session(params):
        async with mcp_client(params["mcpServers"][0], mode="auto") as client:
            tools.extend(tool.name for tool in (await client.list_tools()).tools)
        return {"sessionId": "late"}

    async with situation(handlers={"session/new": new_session}) as on:
        await on.declare()

        assert tools == ["add", "count", "echo"]
        assert on.provider.log[0] == ("mcp/connect", {"serverId": "server-1"})


async def test_connect_carries_the_session_once_it_is_known():
    async with situation() as on:
        [entry] = await on.declare()
        async with mcp_client(entry, mode="auto"):
            pass

        connect = {"serverId": "server-1", "_meta": {"sessionId": "session-1"}}
        assert on.provider.log[0] == ("mcp/connect", connect)


async def test_later_messages_carry_a_session_unknown_at_connect():
    """The session gets its id while the connection is open."""
    carrier = []

    async with trio.open_nursery() as nursery:
        answer = trio.Event()
        connected = trio.Event()

        async def agent_port(entry):
            async with mcp_client(entry, mode="auto") as client:
                connected.set()
                await answer.wait()
                await client.list_tools()
                carrier.append(on.provider.log[-1][1].get("_meta"))
                nursery.cancel_scope.cancel()

        async def new_session(params):
            nursery.start_soon(agent_port, params["mcpServers"][0])
            await connected.wait()
            return {"sessionId": "session-9"}

        async with situation(handlers={"session/new": new_session}) as on:
            await on.declare()
            answer.set()
            await trio.sleep_forever()

    assert carrier == [{"sessionId": "session-9"}]


@pytest.mark.parametrize("method", ["session/close", "session/delete"])
async def test_a_session_that_ends_releases_its_servers(method):
    async with situation(handlers={method: lambda params: {}}) as on:
        [entry] = await on.declare()
        async with shim(entry) as process:
            await request(process, 1, "ping")
            await on.client.request(method, {"sessionId": "session-1"})
            with trio.fail_after(5):
                assert await process.wait() == 0
        assert on.provider.methods()[-1] == "mcp/disconnect"

        async with shim(entry) as process:  # and the token is void
            with trio.fail_after(5):
                assert await process.wait() == 0
        assert on.provider.methods().count("mcp/connect") == 1


async def test_a_session_that_could_not_be_set_up_releases_its_servers():
    given = []

    def new_session(params):
        given.extend(params["mcpServers"])
        raise RequestError(-32000, "no")

    async with situation(handlers={"session/new": new_session}) as on:
        with pytest.raises(RequestError, match="no"):
            await on.declare()
        async with shim(given[0]) as process:
            with trio.fail_after(5):
                assert await process.wait() == 0
        assert on.provider.log == []


async def test_an_unanswered_close_keeps_the_servers():
    """An agent without `session/close` says -32601: its session goes on."""
    async with situation() as on:
        [entry] = await on.declare()
        with pytest.raises(RequestError):
            await on.client.request("session/close", {"sessionId": "session-1"})
        async with mcp_client(entry, mode="auto") as client:
            assert (await client.list_tools()).tools


async def test_a_server_id_without_a_provider_is_a_clear_error():
    async with situation() as on:
        other = {"type": "acp", "name": "ghost", "serverId": "nobody"}
        [entry] = await on.declare(other)
        async with shim(entry) as process:
            answer = await request(process, 1, "initialize", {})

        assert answer["error"] == {"code": -32602, "message": "no serverId server-1"}


async def test_a_refused_connection_is_the_answer_and_no_other_binding_is_tried():
    """The provider would never answer a message without a connection."""

    def refuse(params):
        raise RequestError(-32000, "the database is locked", {"retry": False})

    async def never(params):
        await trio.sleep_forever()

    async with situation() as on:
        on.client.handlers.update({"mcp/connect": refuse, "mcp/message": never})
        [entry] = await on.declare()
        async with shim(entry) as process:
            first = await request(process, 1, "initialize", {})
            second = await request(process, 2, "tools/list")

        asked = [h.method for h in on.client.transcript if h.method.startswith("mcp/")]

    error = {"code": -32000, "message": "the database is locked", "data": {"retry": False}}
    assert (first["error"], second["error"]) == (error, error)
    assert asked == ["mcp/connect"]


async def test_a_provider_of_the_other_key_is_found_by_its_refusal():
    """A declaration with both keys; the provider answers "invalid params" to `serverId`."""
    both = {"type": "acp", "name": "tools", "serverId": "server-1", "id": "server-1"}
    async with situation("acpId") as on:
        [entry] = await on.declare(both)
        async with mcp_client(entry, mode="legacy") as client:
            assert (await client.list_tools()).tools
    assert on.provider.methods()[:2] == ["mcp/connect", "mcp/connect"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_the_end_of_a_shim_disconnects_and_cancels(number):
    waiting = Waiting()
    async with situation(make=waiting.server) as on:
        [entry] = await on.declare()
        async with shim(entry) as process:
            await initialize(process)
            await send(process, 2, "tools/call", {"name": "wait", "arguments": {}})
            await waiting.begun.wait()
            process.send_signal(number)
            with trio.fail_after(5):
                await waiting.cancelled.wait()
        await on.until(lambda: "mcp/disconnect" in on.provider.methods())
        assert [h for h in on.client.transcript if h.method == "$/cancel_request"]


async def test_the_end_of_the_chain_ends_the_shims_and_leaves_nothing():
    async with situation() as on:
        [entry] = await on.declare()
        [address] = [e["value"] for e in entry["env"] if e["name"] == "ACP_MCP_BRIDGE"]
        directory = os.path.dirname(address.removeprefix("unix:"))
        assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
        async with shim(entry) as process:
            await initialize(process)
            on.client.close()
            with trio.fail_after(5):
                assert await process.wait() == 0
    with pytest.raises(FileNotFoundError):
        os.stat(directory)


async def test_notifications_keep_their_order_around_a_response():
    """Notification, answer, notification: in this order, beside other traffic."""

    def message(params):
        def note(number):
            data = {"level": "info", "data": number}
            carrier = {"connectionId": "c", "method": "notifications/message", "params": data}
            on.client.notify("mcp/message", carrier)

        if params["method"] != "tools/call":
            return {}
        on.client.start_soon(after, note)
        note(params["params"]["n"] * 2)
        return {"n": params["params"]["n"]}

    async def after(note):
        note("after")

    async with situation() as on:
        on.client.handlers["mcp/connect"] = lambda params: {"connectionId": "c"}
        on.client.handlers["mcp/disconnect"] = lambda params: {}
        on.client.handlers["mcp/message"] = message
        [entry] = await on.declare()
        async with shim(entry) as process:
            await request(process, 0, "initialize", {})
            for number in range(1, 101):
                await send(process, number, "tools/call", {"n": number})
            seen = await receive_all(process, 300)

    before = [s["params"]["data"] for s in seen if "method" in s and s["params"]["data"] != "after"]
    assert before == [2 * number for number in range(1, 101)]
    assert [s["result"]["n"] for s in seen if "id" in s] == list(range(1, 101))
    for number in range(1, 101):
        data = next(i for i, s in enumerate(seen) if s.get("params", {}).get("data") == 2 * number)
        answer = next(i for i, s in enumerate(seen) if s.get("id") == number)
        assert data < answer
