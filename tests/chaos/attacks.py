"""Attacks of clients on one server: within what any client of `serve` can send.

A server must survive them without growing. An attack raises `AssertionError` if it succeeds; to be
refused or cut off is in order. Smaller here than in their own tests: the thousand processes of a
tree, the calls that rules must not cover (over 700 in `tests/proxies/permissions/bypasses.yaml`,
here those of the chain's rules, some at a time).
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import trio
from chaos.clients import (
    Client,
    Device,
    Refused,
    ask,
    initialize,
    new_session,
    open_session,
    prompt,
    prompt_over,
    request,
)
from support.raw_json import compact, dumps

__all__ = ["Attack", "attack", "attacks_on"]


@attrs.frozen
class Attack:
    """`agent`: what it needs, `any` or a hostile `program`."""

    run: Client
    agent: str


_ATTACKS: list[Attack] = []


def attack(agent: str = "any") -> Callable[[Client], Client]:
    """Add an attack to the table."""

    def add(client: Client) -> Client:
        _ATTACKS.append(Attack(client, agent))
        return client

    return add


def attacks_on(agent: str) -> list[Client]:
    """The attacks on a server whose agents are programs, or plugins."""
    return [each.run for each in _ATTACKS if each.agent in ("any", agent)]


@attack()
async def many_sessions(device: Device) -> None:
    """A thousand sessions in batches."""
    async with device.websocket() as socket:
        await ask(socket, initialize())
        await _open_sessions(socket, 1_000)


async def _open_sessions(socket: Any, count: int) -> int:
    """Ask for so many, in batches of a hundred; the number of those that were opened."""
    opened = 0
    for first in range(1000, 1000 + count, 100):
        numbers = range(first, first + 100)
        new = [request(number, "session/new", cwd="/", mcpServers=[]) for number in numbers]
        await socket.send_message(compact(new))
        while not isinstance(answers := json.loads(await socket.get_message()), list):
            pass
        opened += sum("result" in answer for answer in answers)
    return opened


@attack()
async def first_bytes(device: Device) -> None:
    """HTTP/2 that hypercorn fails on, with the token in it; the log must not have it."""
    async with await _tcp(device) as stream:
        await stream.send_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + device.token.encode() * 99)
        with trio.move_on_after(2):
            while await stream.receive_some():
                pass


# -- lines, messages and bodies -------------------------------------------------------------------


@attack()
async def newlines(device: Device) -> None:
    """A megabyte of blank lines, over WebSocket and HTTP."""
    async with device.websocket() as socket:
        await open_session(socket)
        await socket.send_message("\n" * 1_000_000)
    async with device.http() as client:
        await client.post(
            device.url, content=b"\n" * 1_000_000, headers={"content-type": "application/json"}
        )


@attack()
async def unfinished_message(device: Device) -> None:
    """WebSocket fragments without an end."""
    async with await _raw_websocket(device) as stream:
        for _ in range(64):
            await stream.send_all(_frame(b"x" * 65536, opcode=1 if _ == 0 else 0, final=False))
        await trio.sleep(2)


@attack()
async def unfinished_body(device: Device) -> None:
    """A POST of a megabyte whose last byte never comes."""
    stream = await _tcp(device)
    async with stream:
        host = urlsplit(device.url).netloc
        head = (
            f"POST /acp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {device.token}\r\nContent-Length: 1000001\r\n\r\n"
        )
        await stream.send_all(head.encode() + b" " * 1_000_000)
        await trio.sleep(2)


@attack()
async def large_set_ups(device: Device) -> None:
    """Sessions whose set-up carries a megabyte of `_meta`."""
    async with device.websocket() as socket:
        await open_session(socket)
        meta = {"x": "y" * 1_000_000}
        for number in range(10, 30):
            made = request(number, "session/new", cwd="/", mcpServers=[], _meta=meta)
            await ask(socket, made)


@attack()
async def deep_nesting(device: Device) -> None:
    """JSON nested as deeply as can just be read, and deeper."""
    async with device.websocket() as socket:
        session = await open_session(socket)
        for depth in (900, 977, 1000, 100_000):
            nested = "[" * depth + "]" * depth
            text = compact(prompt(depth, session, "echo x"))
            await socket.send_message(text[:-2] + f',"_meta":{nested}}}}}')
            while "id" not in (answer := json.loads(await socket.get_message())):
                pass
            assert depth > 900_000 or answer["id"] in (depth, None), answer


@attack()
async def garbage(device: Device) -> None:
    """Lines that are not messages."""
    async with device.websocket() as socket:
        await open_session(socket)
        for line in ("{", "null", "[]", "42", '{"id":{}}', "\ud7ff", '{"jsonrpc":"2.0","id":1}'):
            await socket.send_message(line)


@attack()
async def overlong_frames(device: Device) -> None:
    """HTTP/2 frames of 16 MiB, without a token: each is refused by its head."""
    settings, head = b"\0\0\0\4\0\0\0\0\0", b"\xff\xff\xff\0\0\0\0\0\1"
    for _ in range(8):
        async with await _tcp(device) as stream:
            await stream.send_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + head)
            taken = 0
            with suppress(trio.BrokenResourceError):
                for _ in range(200):
                    await stream.send_all(b"x" * 65_536)
                    taken += 65_536
            assert taken < 200 * 65_536, "all of a frame that is too large"


@attack()
async def deflate_bomb(device: Device) -> None:
    """A compressed message of 64 MiB of spaces, offered and not; and one over the limit."""
    small = zlib.compressobj(wbits=-15)
    bomb = b"".join(small.compress(b" " * 2**20) for _ in range(64)) + small.flush(
        zlib.Z_SYNC_FLUSH
    )
    for extension in ("", "permessage-deflate"):
        async with await _raw_websocket(device, extension) as stream:
            await stream.send_all(_frame(bomb[:-4], opcode=0x41))
            while await stream.receive_some():
                pass
    async with device.websocket() as socket:
        await open_session(socket)
        await socket.send_message(" " * (16 * 2**20 + 1))
        await socket.get_message()


@attack()
async def patterns(device: Device) -> None:
    """What a backtracking pattern for tokens takes seconds for."""
    async with device.websocket() as socket:
        session = await open_session(socket)
        await prompt_over(socket, session, 2, "echo " + "eyJ-" * 12_500)


@attack()
async def half_an_emoji(device: Device) -> None:
    """Lone surrogates over HTTP, in `initialize` too."""
    async with device.http() as client:
        content = {"content-type": "application/json"}
        opening = dumps(initialize(_meta={"x": "\ud83d"}))
        opened = await client.post(device.url, content=opening, headers=content)
        headers = {"acp-connection-id": opened.headers["acp-connection-id"], **content}
        body = dumps(request(1, "session/new", cwd="/\ud83d", mcpServers=[]))
        posted = await client.post(device.url, content=body, headers=headers)
        assert posted.status_code == 202, posted.text


@attack()
async def slow_reader(device: Device) -> None:
    """Asks for ten megabytes and reads none of them."""
    async with await _raw_websocket(device) as stream:
        for id, message in enumerate(
            [initialize(), request(1, "session/new", cwd="/", mcpServers=[])]
        ):
            await stream.send_all(_frame(dumps({**message, "id": id})))
        for number in range(2, 12):
            text = dumps(prompt(number, "s1", "stream 1000 1000"))
            await stream.send_all(_frame(text))
        await trio.sleep(2)


# -- agents that die, and budgets -----------------------------------------------------------------


@attack()
async def budget(device: Device) -> None:
    """More prompts at once than the budget of a session has turns."""
    async with device.websocket() as socket:
        session = await open_session(socket)
        for number in range(1000, 1000 + 2 * TURNS):
            await socket.send_message(compact(prompt(number, session, f"echo {RAN}")))
        ran = answers = 0
        while answers < 2 * TURNS:
            text = await socket.get_message()
            message = json.loads(text)
            answers += "method" not in message and message.get("id", 0) >= 1000
            ran += "method" in message and RAN in text
        assert ran <= TURNS, f"{ran} turns of {TURNS}"


TURNS: Final = 200
"""Turns of a session (`budget`)."""
RAN: Final = "turn-that-ran"
"""What agents say in these turns."""


@attack()
async def ledger(device: Device) -> None:
    """Prompts while the ledger of the day's budget cannot be written: its directory is a file.
    The ledger is that of clients with a certain name, so that no other turns are refused."""
    kept = Path(device.place) / LEDGER
    directory, away = kept.parent, kept.parent.with_name("away")
    async with _ONE_LEDGER, device.websocket() as socket:
        await ask(socket, initialize(clientInfo={"name": BUDGETED, "version": "1"}))
        session = await new_session(socket, 1)
        assert RAN in await _turns(socket, session, 10), "refused with a sound ledger"
        directory.rename(away)
        try:
            directory.touch()
            said = await _turns(socket, session, *range(11, 21))
            assert RAN not in said, "a turn without a ledger"
            assert said.count('"refusal"') == 10, said[-200:]
            assert device.place not in said, "the place of the ledger"
        finally:
            directory.unlink()
            away.rename(directory)
        assert RAN in await _turns(socket, session, 30), "refused with a mended ledger"


async def _turns(socket: Any, session: str, *numbers: int) -> str:
    """What was said in turns that begin at once."""
    for number in numbers:
        await socket.send_message(compact(prompt(number, session, f"echo {RAN}")))
    said, answered = [], 0
    while answered < len(numbers):
        said.append(await socket.get_message())
        message = json.loads(said[-1])
        answered += "method" not in message and message.get("id") in numbers
    return "\n".join(said)


LEDGER: Final = "ledger/sums"
"""File of the budget of a day, in `Device.place`."""
BUDGETED: Final = "budgeted"
"""Name of the clients that have this budget."""
_ONE_LEDGER: Final = trio.Lock()


@attack()
async def provided_servers(device: Device) -> None:
    """Sessions with MCP servers of the client: the bridge makes sockets for an agent that is a
    program; the server's working directory is removed, its TMPDIR is setgid."""
    async with device.websocket() as socket:
        await ask(socket, initialize())
        for number in range(1, 11):
            servers = [{"type": "acp", "name": f"n{n}", "serverId": f"s{n}"} for n in range(10)]
            new = request(number, "session/new", cwd="/", mcpServers=servers)
            await socket.send_message(compact(new))
            answer = await _refuse_until_answered(socket, number)
            if "error" in answer:
                raise Refused(answer["error"]["message"])


async def _refuse_until_answered(socket: Any, number: int) -> Any:
    """The answer; what the agent asks meanwhile, as for an MCP connection, is refused."""
    while True:
        message = json.loads(await socket.get_message())
        if "id" in message and "method" in message:
            error = {"code": -32601, "message": "Method not found"}
            refusal = {"jsonrpc": "2.0", "id": message["id"], "error": error}
            await socket.send_message(compact(refusal))
        elif message.get("id") == number:
            return message


# -- by hand --------------------------------------------------------------------------------------


async def _tcp(device: Device) -> trio.SocketStream:
    parts = urlsplit(device.url)
    assert parts.hostname is not None
    assert parts.port is not None
    return await trio.open_tcp_stream(parts.hostname, parts.port)


async def _raw_websocket(device: Device, extensions: str = "") -> trio.SocketStream:
    """A WebSocket whose frames are written by hand."""
    stream = await _tcp(device)
    lines = [
        "GET /acp HTTP/1.1",
        f"Host: {urlsplit(device.url).netloc}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        f"Authorization: Bearer {device.token}",
        *([f"Sec-WebSocket-Extensions: {extensions}"] if extensions else []),
    ]
    await stream.send_all("\r\n".join([*lines, "", ""]).encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        chunk = await stream.receive_some()
        if not chunk:
            raise trio.BrokenResourceError("the upgrade was refused")
        answer += chunk
    return stream


def _frame(payload: bytes, *, opcode: int = 1, final: bool = True) -> bytes:
    """A masked frame (RFC 6455 §5.2); the mask is zero."""
    length = len(payload)
    if length < 126:
        size = struct.pack("!B", 0x80 | length)
    elif length < 65536:
        size = struct.pack("!BH", 0x80 | 126, length)
    else:
        size = struct.pack("!BQ", 0x80 | 127, length)
    return bytes([opcode | (0x80 if final else 0)]) + size + bytes(4) + payload
