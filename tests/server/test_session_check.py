"""Every message with a session id is refused for a session of another principal."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import attrs
import pytest
import trio
import trio_websocket
from support.raw_json import compact
from support.schema_methods import methods_with_session
from support.server_clients import PATIENCE, Remote, ask, http, new_session, request, websocket

from conductor.chain.chain import Chain
from conductor.plugins.plugin_component import PluginComponent
from conductor.proxy import Agent, on
from conductor.routing.component import Component
from conductor.server.access import AccessPolicy, read_tokens
from conductor.server.listen.address import TcpAddress
from conductor.server.run import RunningServer, ServerSettings, open_server
from conductor.transport.base import Transport

ANN, BOB = "a" * 32, "b" * 32
ACCESS = AccessPolicy(tokens=read_tokens([f"ann:{ANN}", f"bob:{BOB}"]))
EXTENSIONS = ("_vendor/ask", "_vendor/told", "session/of_a_later_version")


CASES = [
    (version, method)
    for version in (1, 2)
    for method in [*methods_with_session(version), *EXTENSIONS]
]


@attrs.define(eq=False)
class Recorder(Agent):
    """Tells what reached any instance of it."""

    reached: list[str]
    version: int = attrs.field(default=1, init=False)

    @on("*")
    async def observe(self, message: Any) -> None:
        if message.method is not None:
            self.reached.append(message.method)

    @on("initialize")
    async def initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        version = params["protocolVersion"]
        capabilities = {1: {"agentCapabilities": {"loadSession": True}}, 2: {"capabilities": {}}}
        return {"protocolVersion": version, "info": {"name": "recorder"}, **capabilities[version]}

    @on("session/new")
    async def new(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"sessionId": f"of {params['cwd']}"}

    @on("session/list")
    async def list(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"sessions": []}


Send: TypeAlias = Callable[[Any], Awaitable[None]]
"""Sends a message, and returns when it has been dealt with."""


@asynccontextmanager
async def by_websocket(server: RunningServer, version: int) -> AsyncIterator[Send]:
    async with _socket(server, version) as socket:

        async def send(message: Any) -> None:
            await socket.send_message(compact(message))
            await ask(socket, request(99, "session/list"))

        yield send


@asynccontextmanager
async def by_batch(server: RunningServer, version: int) -> AsyncIterator[Send]:
    async with _socket(server, version) as socket:

        async def send(message: Any) -> None:
            await socket.send_message(compact([message, request(99, "session/list")]))
            answers = json.loads(await socket.get_message())
            assert 99 in [answer["id"] for answer in answers]

        yield send


@asynccontextmanager
async def by_http(server: RunningServer, version: int) -> AsyncIterator[Send]:
    authorized = {"authorization": f"Bearer {BOB}"}
    async with http(server, headers=authorized) as client:
        hello = request(0, "initialize", protocolVersion=version, clientCapabilities={})
        response = await client.post("/acp", json=hello)
        remote = Remote(client, response.headers["acp-connection-id"], lambda: _http(server))
        async with remote.stream() as messages:

            async def send(message: Any) -> None:
                await remote.post(message)
                named = {**remote.headers(message["params"]["sessionId"])}
                await client.post("/acp", json=message, headers=named)
                await remote.post(request(99, "session/list"))
                while (await messages.receive()).get("id") != 99:
                    pass

            yield send


def _http(server: RunningServer) -> Any:
    return http(server, headers={"authorization": f"Bearer {BOB}"})


@asynccontextmanager
async def _socket(
    server: RunningServer, version: int, token: str = BOB
) -> AsyncIterator[trio_websocket.WebSocketConnection]:
    async with websocket(server, ("authorization", f"Bearer {token}")) as socket:
        hello = request(0, "initialize", protocolVersion=version, clientCapabilities={})
        await ask(socket, hello)
        yield socket


@asynccontextmanager
async def recording() -> AsyncIterator[tuple[RunningServer, list[str]]]:
    reached: list[str] = []

    def make_chain(transport: Transport) -> Chain:
        def make() -> list[Component]:
            return [PluginComponent("agent", Recorder(reached), "agent")]

        return Chain(transport, make)

    settings = ServerSettings((TcpAddress("127.0.0.1", 0),), ACCESS)
    with trio.fail_after(3 * PATIENCE):
        async with open_server(make_chain, settings) as server:
            yield server, reached


def test_the_table_has_every_method_that_the_schema_has():
    assert {"session/prompt", "session/cancel", "session/set_mode", "nes/suggest"} <= {
        *methods_with_session(1)
    }
    assert {"session/prompt", "terminal/cancel", "tool_call/cancel"} <= {*methods_with_session(2)}
    assert len(CASES) > 30


@pytest.mark.parametrize("form", [0, 1], ids=["request", "notification"])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "way", [by_websocket, by_batch, pytest.param(by_http, marks=pytest.mark.slow)]
)
async def test_no_message_about_a_session_of_another_principal_reaches_the_agent(
    way, version, form
):
    methods_of_version = [method for each, method in CASES if each == version]
    assert methods_of_version
    async with (
        recording() as (server, reached),
        _socket(server, 1, ANN) as ann,
        way(server, version) as send,
    ):
        session = (await ask(ann, new_session(1)))["result"]["sessionId"]
        for method in methods_of_version:
            del reached[:]
            message = (request(2, method), {"jsonrpc": "2.0", "method": method})[form]
            params = {"sessionId": session, "cwd": "/", "mcpServers": []}
            await send({**message, "params": params})

            assert method not in reached, method


@pytest.mark.parametrize("spelling", ["session_id", "SessionID", "sessionid"])
@pytest.mark.parametrize("method", ["session/load", "session/prompt", "_vendor/ask"])
async def test_other_spellings_of_the_session_id_are_checked_too(spelling, method):
    """The Python SDK takes `session_id`; Go ignores the case."""
    async with (
        recording() as (server, reached),
        _socket(server, 1, ANN) as ann,
        _socket(server, 1, BOB) as bob,
    ):
        session = (await ask(ann, new_session(1)))["result"]["sessionId"]
        params = {spelling: session, "cwd": "/", "mcpServers": []}
        answer = await ask(bob, request(2, method, **params))

    assert answer["error"]["message"] == "Resource not found"
    assert method not in reached


@pytest.mark.parametrize("method", ["session/prompt", "session/set_mode", "_vendor/ask"])
async def test_a_refused_request_is_answered_as_for_an_unknown_session(method):
    async with (
        recording() as (server, _),
        _socket(server, 1, ANN) as ann,
        _socket(server, 1, BOB) as bob,
    ):
        session = (await ask(ann, new_session(1)))["result"]["sessionId"]
        answers = [await ask(peer, request(2, method, sessionId=session)) for peer in (bob, ann)]

    assert answers[0]["error"] == {
        "code": -32002,
        "message": "Resource not found",
        "data": {"sessionId": session},
    }
    assert answers[1]["error"]["code"] == -32601  # of the agent


async def test_messages_about_an_own_session_reach_the_agent():
    """So that what is not reached above is not reached because it is refused."""
    async with recording() as (server, reached):
        for version, method in CASES:
            async with _socket(server, version) as bob:
                session = (await ask(bob, new_session(1)))["result"]["sessionId"]
                await ask(bob, request(2, method, sessionId=session))
                # A notification is answered before it is delivered, and delivered before this one.
                await ask(bob, request(3, EXTENSIONS[0], sessionId=session))
                assert method in reached, (version, method)
