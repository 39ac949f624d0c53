"""Access to the shim listener: unauthorized local processes get nothing and disturb no client."""

from __future__ import annotations

import contextlib
import os

import pytest
import trio
from support.bridge_harness import mcp_client, shim, situation

from bridges import shim_listener
from bridges.shim_listener import ShimListener

TOO_LONG = b"x" * 300


@pytest.fixture
async def entrance(nursery):
    """A listener and the accepted connections."""
    entered = []

    async def handler(declaration, transport):
        entered.append((declaration, await transport.receive()))

    opened = ShimListener()
    opened.open()
    nursery.start_soon(opened.serve, handler)
    yield opened, entered
    opened.close()
    for stream in streams:
        await stream.aclose()
    streams.clear()


streams: list[trio.SocketStream] = []


async def connect(opened: ShimListener) -> trio.SocketStream:
    streams.append(await trio.open_unix_socket(opened.address.removeprefix("unix:")))
    return streams[-1]


async def test_bytes_after_the_token_are_not_lost(entrance):
    opened, entered = entrance
    token = opened.issue("declaration")
    stream = await connect(opened)
    await stream.send_all(token[:10].encode())  # in pieces, as sockets like it
    await stream.send_all(token[10:].encode() + b"\nhello")
    assert await stream.receive_some() == b""
    assert entered == [("declaration", b"hello")]


@pytest.mark.parametrize("shown", [b"wrong\n", TOO_LONG])
async def test_a_connection_with_a_bad_token_is_closed_without_output(entrance, shown):
    opened, entered = entrance
    opened.issue("declaration")
    stream = await connect(opened)
    await stream.send_all(shown)
    assert await _rest(stream) == b""
    assert entered == []


async def test_a_token_in_halves_is_waited_for_but_not_for_ever(entrance, autojump_clock):
    opened, entered = entrance
    token = opened.issue("declaration")
    stream = await connect(opened)
    await stream.send_all(token.encode())  # without its newline
    assert await _rest(stream) == b""
    assert entered == []


async def test_a_revoked_token_is_refused(entrance):
    opened, entered = entrance
    token = opened.issue("declaration")
    opened.revoke(token)
    stream = await connect(opened)
    await stream.send_all(token.encode() + b"\n")
    assert await _rest(stream) == b""
    assert entered == []


async def test_connections_without_a_token_are_limited(entrance, monkeypatch):
    opened, entered = entrance
    token = opened.issue("declaration")
    silent = [await connect(opened) for _ in range(shim_listener._MAX_UNAUTHENTICATED)]
    await trio.testing.wait_all_tasks_blocked()
    with trio.fail_after(1):  # at once, not after the token timeout
        assert await _rest(await connect(opened)) == b""

    await silent[0].aclose()
    await trio.testing.wait_all_tasks_blocked()
    stream = await connect(opened)
    await stream.send_all(token.encode() + b"\nhello")
    assert await stream.receive_some() == b""
    assert entered == [("declaration", b"hello")]


async def test_a_connection_of_another_user_is_refused(entrance, monkeypatch):
    opened, entered = entrance
    token = opened.issue("declaration")
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    stream = await connect(opened)
    with contextlib.suppress(trio.BrokenResourceError):
        await stream.send_all(token.encode() + b"\n")
    assert await _rest(stream) == b""
    assert entered == []


async def test_a_client_that_floods_with_rubbish_disturbs_no_other():
    async with situation() as on:
        [entry] = await on.declare()
        async with shim(entry) as process:
            await process.stdin.send_all(b"rubbish\n" * 1000 + b'{"half": ')
            async with mcp_client(entry, mode="auto") as client:
                result = await client.call_tool("add", {"a": 1, "b": 2})
        assert result.structured_content == {"result": 3}


async def test_a_shim_without_its_environment_describes_itself():
    async with situation() as on:
        [entry] = await on.declare()
        process = await trio.run_process(
            [entry["command"], *entry["args"]], env={}, capture_stderr=True, check=False
        )
    assert process.returncode == 1
    assert b"started by an agent" in process.stderr


async def test_the_token_is_in_no_argument():
    async with situation() as on:
        [entry] = await on.declare()
        [token] = [one["value"] for one in entry["env"] if one["name"] == "ACP_MCP_TOKEN"]
        assert token not in " ".join([entry["command"], *entry["args"]])
        assert entry["args"][:2] == ["-I", "-S"]


async def test_two_declarations_have_two_tokens():
    async with situation() as on:
        first, second = await on.declare(), await on.declare()
        assert first[0]["env"][1] != second[0]["env"][1]


async def _rest(stream: trio.SocketStream) -> bytes:
    """Everything until the end, which has to come."""
    rest = b""
    try:
        while chunk := await stream.receive_some():
            rest += chunk
    except trio.BrokenResourceError:
        pass
    return rest
