"""Attacks of clients on one server: within what any client of `serve` can send.

A server must survive them without growing and without hurting other tenants. An attack raises
`AssertionError` if it succeeds; to be refused or cut off is in order. `@attack(…)` has the numbers
of the findings that it repeats, of the list of attacks of November 2026. The others cannot come
from a client (`NOT_FROM_A_CLIENT`). Smaller here than in their own tests: the thousand processes of
a tree (9), the calls that rules must not cover (14: over 700 in
`tests/proxies/permissions/bypasses.yaml`, here those of the chain's rules, some at a time). Of 18,
only what an agent leaves behind: the conductor itself is killed in
`tests/processes/test_stop_signals.py`.
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
from chaos.tenants import (
    Client,
    Refused,
    Tenant,
    ask,
    initialize,
    new_session,
    open_http,
    open_session,
    prompt,
    prompt_over,
    request,
)
from support.raw_json import compact, dumps
from support.schema_methods import methods_with_session

__all__ = ["ATTACKS", "NOT_FROM_A_CLIENT", "Attack", "attack", "attacks_on"]

NOT_FROM_A_CLIENT: Final = {
    4: "needs client certificates: tests/server/test_client_certificate.py",
    20: "no attack: what a killed proxy had received is lost (docs/reliability.md)",
    23: "`check` is a command: tests/cli",
}
"""Findings that no client of `serve` can repeat, and why."""


@attrs.frozen
class Attack:
    """`items`: numbers of the findings; `agent`: what it needs, `any` or a hostile `program`."""

    run: Client
    items: tuple[int, ...]
    agent: str


ATTACKS: list[Attack] = []


def attack(*items: int, agent: str = "any") -> Callable[[Client], Client]:
    """Add an attack to the table."""

    def add(client: Client) -> Client:
        ATTACKS.append(Attack(client, items, agent))
        return client

    return add


def attacks_on(agent: str) -> list[Client]:
    """The attacks on a server whose agents are programs, or plugins."""
    return [each.run for each in ATTACKS if each.agent in ("any", agent)]


# -- other principals' sessions, and details ------------------------------------------------------


@attack(1, 3)
async def foreign_session(tenant: Tenant) -> None:
    """All methods for another principal's session, in both versions, also unreadable."""
    for version in (1, 2):
        async with tenant.websocket() as socket:
            await ask(socket, initialize(version))
            for number, method in enumerate(methods_with_session(version), 10):
                params = {"sessionId": tenant.victim, "cwd": "/", "mcpServers": [], "prompt": []}
                text = compact(request(number, method, **params))
                await socket.send_message(text)
                _check_refused(method, json.loads(await _answer_to(socket, number)))
                await socket.send_message(text[:-2] + ',"_meta":"\\ud800"}}')
                _check_refused(method, json.loads(await _answer_to(socket, number)))


async def _answer_to(socket: Any, number: int) -> str:
    while True:
        text: str = await socket.get_message()
        message = json.loads(text)
        if message.get("id") == number and "method" not in message:
            return text


def _check_refused(method: str, answer: dict[str, Any]) -> None:
    code = answer.get("error", {}).get("code")
    assert code in (-32002, -32600, -32602), f"{method} for the session of another: {answer}"


@attack(1, 3)
async def foreign_session_over_http(tenant: Tenant) -> None:
    """The same over HTTP, and the session's stream."""
    async with tenant.http() as client:
        headers = await open_http(client, tenant.url)
        named = {**headers, "acp-session-id": tenant.victim}
        body = prompt(1, tenant.victim, "echo x")
        posted = await client.post(tenant.url, json=body, headers=named)
        assert posted.status_code != 200, posted.text
        other = await client.delete(tenant.url, headers={"acp-connection-id": "x" * 32})
        assert other.status_code == 404, other.text
        await client.delete(tenant.url, headers=headers)


@attack(2)
async def quota(tenant: Tenant) -> None:
    """More sessions of one principal than it may have: a principal that does nothing else."""
    greedy = attrs.evolve(tenant, token=tenant.greedy)
    async with greedy.websocket() as socket:
        await ask(socket, initialize())
        opened = await _open_sessions(socket, SESSIONS_EACH + 100)
        # Fewer if such a client is being served already: requests in flight count, too.
        assert opened <= SESSIONS_EACH, f"{opened} sessions, of {SESSIONS_EACH}"


SESSIONS_EACH: Final = 1_500
"""Sessions of a principal (`--max-sessions-each`)."""


@attack(2, 11)
async def many_sessions(tenant: Tenant) -> None:
    """A thousand sessions in batches."""
    async with tenant.websocket() as socket:
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


async def open_victim(tenant: Tenant) -> str:
    """A session whose id no client of another principal gets: agents number their sessions."""
    async with tenant.websocket() as socket:
        await ask(socket, initialize())
        await _open_sessions(socket, 1_200)
        return await new_session(socket, 1)


@attack(5)
async def first_bytes(tenant: Tenant) -> None:
    """HTTP/2 that hypercorn fails on, with the token in it; the log must not have it."""
    async with await _tcp(tenant) as stream:
        await stream.send_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + tenant.token.encode() * 99)
        with trio.move_on_after(2):
            while await stream.receive_some():
                pass


# -- lines, messages and bodies -------------------------------------------------------------------


@attack(6)
async def newlines(tenant: Tenant) -> None:
    """A megabyte of blank lines, over WebSocket and HTTP."""
    async with tenant.websocket() as socket:
        await open_session(socket)
        await socket.send_message("\n" * 1_000_000)
    async with tenant.http() as client:
        await client.post(
            tenant.url, content=b"\n" * 1_000_000, headers={"content-type": "application/json"}
        )


@attack(10)
async def unfinished_message(tenant: Tenant) -> None:
    """WebSocket fragments without an end."""
    async with await _raw_websocket(tenant) as stream:
        for _ in range(64):
            await stream.send_all(_frame(b"x" * 65536, opcode=1 if _ == 0 else 0, final=False))
        await trio.sleep(2)


@attack(13)
async def unfinished_body(tenant: Tenant) -> None:
    """A POST of a megabyte whose last byte never comes."""
    stream = await _tcp(tenant)
    async with stream:
        host = urlsplit(tenant.url).netloc
        head = (
            f"POST /acp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {tenant.token}\r\nContent-Length: 1000001\r\n\r\n"
        )
        await stream.send_all(head.encode() + b" " * 1_000_000)
        await trio.sleep(2)


@attack(11)
async def large_set_ups(tenant: Tenant) -> None:
    """Sessions whose set-up carries a megabyte of `_meta`."""
    async with tenant.websocket() as socket:
        await open_session(socket)
        meta = {"x": "y" * 1_000_000}
        for number in range(10, 30):
            made = request(number, "session/new", cwd="/", mcpServers=[], _meta=meta)
            await ask(socket, made)


@attack(9, 22)
async def deep_nesting(tenant: Tenant) -> None:
    """JSON nested as deeply as can just be read, and deeper."""
    async with tenant.websocket() as socket:
        session = await open_session(socket)
        for depth in (900, 977, 1000, 100_000):
            nested = "[" * depth + "]" * depth
            text = compact(prompt(depth, session, "echo x"))
            await socket.send_message(text[:-2] + f',"_meta":{nested}}}}}')
            while "id" not in (answer := json.loads(await socket.get_message())):
                pass
            assert depth > 900_000 or answer["id"] in (depth, None), answer


@attack(22)
async def garbage(tenant: Tenant) -> None:
    """Lines that are not messages."""
    async with tenant.websocket() as socket:
        await open_session(socket)
        for line in ("{", "null", "[]", "42", '{"id":{}}', "\ud7ff", '{"jsonrpc":"2.0","id":1}'):
            await socket.send_message(line)


@attack(13)
async def overlong_frames(tenant: Tenant) -> None:
    """HTTP/2 frames of 16 MiB, without a token: each is refused by its head."""
    settings, head = b"\0\0\0\4\0\0\0\0\0", b"\xff\xff\xff\0\0\0\0\0\1"
    for _ in range(8):
        async with await _tcp(tenant) as stream:
            await stream.send_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + head)
            taken = 0
            with suppress(trio.BrokenResourceError):
                for _ in range(200):
                    await stream.send_all(b"x" * 65_536)
                    taken += 65_536
            assert taken < 200 * 65_536, "all of a frame that is too large"


@attack(13)
async def deflate_bomb(tenant: Tenant) -> None:
    """A compressed message of 64 MiB of spaces, offered and not; and one over the limit."""
    small = zlib.compressobj(wbits=-15)
    bomb = b"".join(small.compress(b" " * 2**20) for _ in range(64)) + small.flush(
        zlib.Z_SYNC_FLUSH
    )
    for extension in ("", "permessage-deflate"):
        async with await _raw_websocket(tenant, extension) as stream:
            await stream.send_all(_frame(bomb[:-4], opcode=0x41))
            while await stream.receive_some():
                pass
    async with tenant.websocket() as socket:
        await open_session(socket)
        await socket.send_message(" " * (16 * 2**20 + 1))
        await socket.get_message()


@attack(8)
async def patterns(tenant: Tenant) -> None:
    """What a backtracking pattern for tokens takes seconds for."""
    async with tenant.websocket() as socket:
        session = await open_session(socket)
        await prompt_over(socket, session, 2, "echo " + "eyJ-" * 12_500)


@attack(21)
async def half_an_emoji(tenant: Tenant) -> None:
    """Lone surrogates over HTTP, in `initialize` too."""
    async with tenant.http() as client:
        content = {"content-type": "application/json"}
        opening = dumps(initialize(_meta={"x": "\ud83d"}))
        opened = await client.post(tenant.url, content=opening, headers=content)
        headers = {"acp-connection-id": opened.headers["acp-connection-id"], **content}
        body = dumps(request(1, "session/new", cwd="/\ud83d", mcpServers=[]))
        posted = await client.post(tenant.url, content=body, headers=headers)
        assert posted.status_code == 202, posted.text


@attack(12)
async def slow_reader(tenant: Tenant) -> None:
    """Asks for ten megabytes and reads none of them."""
    async with await _raw_websocket(tenant) as stream:
        for id, message in enumerate(
            [initialize(), request(1, "session/new", cwd="/", mcpServers=[])]
        ):
            await stream.send_all(_frame(dumps({**message, "id": id})))
        for number in range(2, 12):
            text = dumps(prompt(number, "s1", "stream 1000 1000"))
            await stream.send_all(_frame(text))
        await trio.sleep(2)


# -- agents that die, and budgets -----------------------------------------------------------------


@attack(16)
async def budget(tenant: Tenant) -> None:
    """More prompts at once than the budget of a session has turns."""
    async with tenant.websocket() as socket:
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


@attack(5, 16)
async def ledger(tenant: Tenant) -> None:
    """Prompts while the ledger of the day's budget cannot be written: its directory is a file.
    The ledger is that of clients with a certain name, so that no other turns are refused."""
    kept = Path(tenant.place) / LEDGER
    directory, away = kept.parent, kept.parent.with_name("away")
    async with _ONE_LEDGER, tenant.websocket() as socket:
        await ask(socket, initialize(clientInfo={"name": BUDGETED, "version": "1"}))
        session = await new_session(socket, 1)
        assert RAN in await _turns(socket, session, 10), "refused with a sound ledger"
        directory.rename(away)
        try:
            directory.touch()
            said = await _turns(socket, session, *range(11, 21))
            assert RAN not in said, "a turn without a ledger"
            assert said.count('"refusal"') == 10, said[-200:]
            assert tenant.place not in said, "the place of the ledger"
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
"""File of the budget of a day, in `Tenant.place`."""
BUDGETED: Final = "budgeted"
"""Name of the clients that have this budget."""
_ONE_LEDGER: Final = trio.Lock()
BODIES: Final = 16 * 2**20
"""`max_message_bytes`: also the bytes of unfinished bodies that a bridge over HTTP takes."""


@attack(7, 17)
async def provided_servers(tenant: Tenant) -> None:
    """Sessions with MCP servers of the client: the bridge makes sockets for an agent that is a
    program; the server's working directory is removed, its TMPDIR is setgid."""
    async with tenant.websocket() as socket:
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


async def _tcp(tenant: Tenant) -> trio.SocketStream:
    parts = urlsplit(tenant.url)
    assert parts.hostname is not None
    assert parts.port is not None
    return await trio.open_tcp_stream(parts.hostname, parts.port)


async def _raw_websocket(tenant: Tenant, extensions: str = "") -> trio.SocketStream:
    """A WebSocket whose frames are written by hand."""
    stream = await _tcp(tenant)
    lines = [
        "GET /acp HTTP/1.1",
        f"Host: {urlsplit(tenant.url).netloc}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        f"Authorization: Bearer {tenant.token}",
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
