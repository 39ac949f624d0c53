"""Details of failures for remote clients, for local ones, and in the log."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import trio
from hpack import Encoder
from support.raw_json import dumps
from support.server_clients import (
    ask,
    connect,
    http,
    initialize,
    new_session,
    prompt,
    serving,
    websocket,
)

from conductor import log
from conductor.server.listen.address import UnixAddress

SECRET = "--path-of-the-server"
DIES_AT_ONCE = [sys.executable, "-c", "import sys; sys.exit('stderr of the server')", SECRET]
DIES_AT_PROMPT = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "session/prompt":
        sys.exit("stderr of the server")
    result = {"protocolVersion": 1, "agentCapabilities": {}, "sessionId": "s"}
    answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    print(json.dumps(answer, separators=(",", ":")), flush=True)
"""
PLUGIN = """
from conductor.proxy import Agent, on

class Fails(Agent):
    @on("initialize")
    async def initialize(self, params: dict) -> dict:
        return {"protocolVersion": 1}

    @on("session/new")
    async def new(self, params: dict) -> dict:
        open("/the/server's/own/path")
"""
OF_THE_SERVER = (SECRET, "stderr of the server", "chain.yaml", sys.executable, "own/path")


def names_the_server(answer: Any) -> bool:
    return any(each in json.dumps(answer) for each in OF_THE_SERVER)


def chain(argv: list[str], more: str = "") -> str:
    return f"version: 1\nagent:\n  run: {json.dumps(argv)}\n  on_failure: end_chain\n{more}"


async def over_unix(path: str, *messages: Any) -> Any:
    """The last of the answers."""
    stream = await trio.open_unix_socket(path)
    answer: Any = None
    received = b""
    async with stream:
        for message in messages:
            await stream.send_all(dumps(message) + b"\n")
            while True:
                while b"\n" not in received:
                    received += await stream.receive_some()
                line, _, received = received.partition(b"\n")
                answer = json.loads(line)
                if answer.get("id") == message["id"]:
                    break
    return answer


@pytest.mark.parametrize(
    ("made", "messages"),
    [
        (chain(DIES_AT_ONCE), [initialize()]),
        (chain(["/no/such/program", SECRET]), [initialize()]),
        (
            chain([sys.executable, "-c", DIES_AT_PROMPT, SECRET]),
            [initialize(), new_session(1), prompt(2, "s", "hi")],
        ),
        ("version: 1\nagent: {use: ./plugin.py:Fails}\n", [initialize(), new_session(1)]),
    ],
    ids=["dies at once", "is not there", "dies in a turn", "plugin"],
)
async def test_only_a_local_client_gets_details_of_the_server(tmp_path, made, messages, capsys):
    log.configure("info")
    (tmp_path / "plugin.py").write_text(PLUGIN)
    socket_path = str(tmp_path / "socket")
    async with serving(tmp_path, chain=made) as server:
        async with websocket(server) as socket:
            for message in messages:
                by_websocket = await ask(socket, message)
        async with http(server) as client:
            response = await client.post("/acp", json=initialize())
        logged = capsys.readouterr().err
    async with serving(tmp_path, chain=made, listen=(UnixAddress(socket_path),)):
        by_unix = await over_unix(socket_path, *messages)

    assert "error" in by_websocket
    assert not names_the_server(by_websocket)
    assert not names_the_server(response.json())
    assert by_websocket["error"]["code"] == by_unix["error"]["code"] == -32603
    assert names_the_server(by_unix)
    assert names_the_server(logged)


async def test_a_proxy_that_does_not_start_is_named_without_details(tmp_path):
    proxy = f"proxies:\n- name: first\n  run: {json.dumps(DIES_AT_ONCE)}\n"
    made = f"version: 1\n{proxy}agent: {{use: test-agent}}\n"
    async with serving(tmp_path, chain=made) as server, websocket(server) as socket:
        answer = await ask(socket, initialize())

    assert answer["error"]["message"] == (
        "component 'first' did not start; the server's log says why"
    )
    assert answer["error"]["data"] == {"component": "first"}


async def test_an_error_in_hypercorn_is_logged_without_received_bytes(tmp_path, capsys):
    """The exception for an HTTP/2 preface holds the bytes that came with it."""
    log.configure("info")
    fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", b"/\xff"),  # hypercorn decodes it as ASCII
        ("authorization", "Bearer the-token-of-ann"),
    ]
    block = Encoder().encode(fields, huffman=False)
    frame = len(block).to_bytes(3, "big") + b"\x01\x05" + (1).to_bytes(4, "big") + block
    settings = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    async with serving(tmp_path) as server, await connect(server) as stream:
        await stream.send_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + frame)
        while await stream.receive_some():
            pass
    logged = capsys.readouterr().err

    assert "connection failed" in logged
    assert "UnicodeDecodeError" in logged
    assert "ws_stream.py" in logged or "http_stream.py" in logged
    assert "the-token-of-ann" not in logged


async def test_messages_of_a_remote_client_are_not_logged(tmp_path, capsys):
    log.configure("info")
    async with serving(tmp_path) as server, websocket(server) as socket:
        await socket.send_message("my password is hunter2")
        await socket.get_message()
        await ask(socket, initialize())
    logged = capsys.readouterr().err

    assert "malformed message" in logged
    assert "hunter2" not in logged
