"""The servers of two users behind a real HAProxy, with the configuration of docs/deployment.md."""

from __future__ import annotations

import json
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import httpx2
import pytest
import trio
import trio_websocket
import trustme
from support.external_programs import Program, free_port, program
from support.raw_json import compact
from support.server_clients import ask, initialize, new_session, prompt, request, texts
from support.smuggling import HTTP1, http1

pytestmark = pytest.mark.external

ROOT = Path(__file__).parents[2]
AGENT = ROOT / "tests" / "support" / "components" / "durable_agent.py"
PATIENCE = 30.0
"""Seconds; only what hangs takes that long."""
USERS = {"ann": "ab", "bob": "ba"}
"""The machines with a server of the user; the second one is the spare."""
ADDRESSES = {
    ("ann", "a"): "10.0.0.11:8765",
    ("ann", "b"): "10.0.0.12:8765",
    ("bob", "a"): "10.0.0.11:8766",
    ("bob", "b"): "10.0.0.12:8766",
}
"""Those of docs/haproxy.cfg."""


def token_of(user: str) -> str:
    return f"token-of-{user}-0123456789"


def host_of(user: str) -> str:
    return f"{user}.acp.example.org"


@attrs.define
class World:
    """HAProxy, and the servers by user and machine."""

    haproxy: Program
    servers: dict[tuple[str, str], Program]
    authority: Path

    @property
    def tls(self) -> ssl.SSLContext:
        """A new one each time: clients put into it which protocols they speak."""
        return ssl.create_default_context(cafile=str(self.authority))

    async def connect(self) -> trio.SSLStream[trio.SocketStream]:
        return await trio.open_ssl_over_tcp_stream(
            "localhost", self.haproxy.port, ssl_context=self.tls, https_compatible=True
        )

    @asynccontextmanager
    async def websocket(
        self, user: str, token: str | None = None
    ) -> AsyncIterator[trio_websocket.WebSocketConnection]:
        stream = await self.connect()
        headers = [(b"authorization", f"Bearer {token or token_of(user)}".encode())]
        async with trio.open_nursery() as nursery:
            try:
                yield await trio_websocket.wrap_client_stream(
                    nursery, stream, host_of(user), "/acp", extra_headers=headers
                )
            finally:
                await trio.aclose_forcefully(stream)
                nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def new_client(self, user: str) -> AsyncIterator[trio_websocket.WebSocketConnection]:
        """The WebSocket of a client that tries until it is admitted."""
        while True:
            try:
                async with self.websocket(user) as socket:
                    yield socket
                    return
            except* trio_websocket.ConnectionRejected:
                pass

    @asynccontextmanager
    async def http(self, user: str) -> AsyncIterator[httpx2.AsyncClient]:
        headers = {"host": host_of(user), "authorization": f"Bearer {token_of(user)}"}
        async with httpx2.AsyncClient(
            base_url=f"https://localhost:{self.haproxy.port}",
            verify=self.tls,
            headers=headers,
            timeout=PATIENCE,
        ) as client:
            yield client


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """For tests that end none of its programs."""
    with running(tmp_path_factory.mktemp("haproxy")) as world:
        yield world


@pytest.fixture
def own_world(tmp_path: Path) -> Iterator[World]:
    with running(tmp_path) as world:
        yield world


@contextmanager
def running(directory: Path) -> Iterator[World]:
    authority = trustme.CA()
    ours = authority.issue_cert("localhost", "127.0.0.1")
    authority.cert_pem.write_to_path(str(directory / "nodes.pem"))
    ours.private_key_and_cert_chain_pem.write_to_path(str(directory / "acp.pem"))
    ours.private_key_pem.write_to_path(str(directory / "key.pem"))
    for blob in ours.cert_chain_pems:
        blob.write_to_path(str(directory / "cert.pem"), append=True)
    servers = {
        (user, machine): server(user, machine, directory)
        for user, machines in USERS.items()
        for machine in machines
    }
    haproxy = load_balancer(directory, servers)
    try:
        for each in (*servers.values(), haproxy):
            each.start()
        yield World(haproxy, servers, directory / "nodes.pem")
    finally:
        for each in (*servers.values(), haproxy):
            each.end()


def server(user: str, machine: str, directory: Path) -> Program:
    """One user's `serve`; its agent keeps sessions where the user's other server finds them."""
    kept = directory / f"sessions-{user}"
    kept.mkdir(exist_ok=True)
    tokens, chain = directory / f"{user}.tokens", directory / f"{user}-{machine}.yaml"
    tokens.write_text(f"laptop:{token_of(user)}\n")
    tokens.chmod(0o600)
    options = {"directory": str(kept), "node": f"{user} at {machine}"}
    chain.write_text(
        f"version: 1\nagent: {{use: '{AGENT}:KeepingAgent', with: {json.dumps(options)}}}\n"
    )
    port = free_port()
    words = {
        "--listen": f"127.0.0.1:{port}",
        "--host": host_of(user),
        "--token-file": tokens,
        "--tls-cert": directory / "cert.pem",
        "--tls-key": directory / "key.pem",
        "--drain-timeout": PATIENCE,
    }
    argv = [sys.executable, "-m", "conductor", "serve", str(chain)]
    argv += [str(word) for pair in words.items() for word in pair]
    return Program(argv, port, "listening on", {"PYTHONPATH": str(ROOT)})


def load_balancer(directory: Path, servers: dict[tuple[str, str], Program]) -> Program:
    port = free_port()
    text = (ROOT / "docs" / "haproxy.cfg").read_text()
    changes = {
        "/etc/haproxy/": f"{directory}/",
        "bind :443": f"bind 127.0.0.1:{port}",
        **{ADDRESSES[each]: f"127.0.0.1:{servers[each].port}" for each in servers},
    }
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path = directory / "haproxy.cfg"
    path.write_text(text)
    return Program([program("haproxy"), "-W", "-db", "-f", str(path)], port, "Loading success")


async def open_session(socket: trio_websocket.WebSocketConnection) -> str:
    await ask(socket, initialize())
    session: str = (await ask(socket, new_session(1)))["result"]["sessionId"]
    return session


async def say(socket: trio_websocket.WebSocketConnection, session: str, text: str) -> str:
    """Prompt, and return what the agent said."""
    await socket.send_message(compact(prompt("turn", session, text)))
    return await rest_of_turn(socket)


async def rest_of_turn(socket: trio_websocket.WebSocketConnection) -> str:
    said: list[str] = []
    while True:
        message = json.loads(await socket.get_message())
        if message.get("id") == "turn":
            assert "result" in message, message
            return "".join(said)
        said += texts([message])


async def load(socket: trio_websocket.WebSocketConnection, session: str) -> Any:
    await ask(socket, initialize())
    return await ask(socket, request(1, "session/load", sessionId=session, cwd="/", mcpServers=[]))


async def test_each_user_reaches_a_server_of_his_own(world):
    with trio.fail_after(PATIENCE):
        async with world.websocket("ann") as ann, world.websocket("bob") as bob:
            anns, bobs = await open_session(ann), await open_session(bob)

            assert await say(ann, anns, "hello") == "ann at a: hello"
            assert await say(bob, bobs, "hello") == "bob at b: hello"


async def test_a_token_of_one_user_opens_nothing_of_another(world):
    with trio.fail_after(PATIENCE):
        async with world.websocket("ann") as ann, world.http("ann") as client:
            await open_session(ann)
            stolen = {"host": host_of("bob")}  # with Ann's token
            response = await client.post("/acp", json=initialize(), headers=stolen)

    assert response.status_code == 401


async def test_no_request_is_hidden_in_the_body_of_another(world):
    """HAProxy and the server behind it agree where a request ends, or one of them refuses it: no
    server answers a request that HAProxy has not seen."""
    hidden = []
    for odd in HTTP1:
        stream = await world.connect()
        answer = b""
        with suppress(trio.BrokenResourceError):
            await stream.send_all(http1(odd, host_of("ann").encode()))
            while chunk := await stream.receive_some():
                answer += chunk
        await trio.aclose_forcefully(stream)
        if b" 200 " in answer:  # HAProxy itself answers 404 for /health
            hidden.append((odd, answer))

    assert hidden == []


async def test_after_the_loss_of_a_machine_its_users_load_their_sessions_at_the_other(own_world):
    with trio.fail_after(2 * PATIENCE):
        async with own_world.websocket("ann") as ann, own_world.websocket("bob") as bob:
            anns, bobs = await open_session(ann), await open_session(bob)
            assert await say(ann, anns, "one") == "ann at a: one"
            assert await say(bob, bobs, "one") == "bob at b: one"

            for user in USERS:
                own_world.servers[user, "a"].send_signal(signal.SIGKILL)

            async with own_world.new_client("ann") as again:
                assert "result" in await load(again, anns)
                assert await say(again, anns, "two") == "ann at b: one two"
            assert await say(bob, bobs, "two") == "bob at b: one two"


async def test_a_server_that_drains_ends_its_turns_and_new_clients_go_to_the_other(own_world):
    draining = own_world.servers["ann", "a"]
    with trio.fail_after(2 * PATIENCE):
        async with own_world.websocket("ann") as busy:
            session = await open_session(busy)
            await busy.send_message(compact(prompt("turn", session, "wait")))
            await ask(busy, request(2, "session/list"))  # the turn runs

            draining.send_signal(signal.SIGTERM)
            await until_draining(own_world)

            async with own_world.new_client("ann") as new:
                assert await say(new, await open_session(new), "hi") == "ann at b: hi"

            cancel = {"jsonrpc": "2.0", "method": "session/cancel"}
            await busy.send_message(compact({**cancel, "params": {"sessionId": session}}))
            assert await rest_of_turn(busy) == "ann at a: wait"
        assert draining.process is not None
        status = await trio.to_thread.run_sync(draining.process.wait)

    assert status == 128 + signal.SIGTERM


async def until_draining(world: World) -> None:
    """Until the server of Ann at machine a, asked directly, takes no new clients."""
    url = f"https://127.0.0.1:{world.servers['ann', 'a'].port}"
    async with httpx2.AsyncClient(base_url=url, verify=world.tls) as client:
        while (await client.get("/ready")).status_code == 200:
            pass
