"""Two servers behind a real HAProxy, with the configuration that docs/deployment.md gives."""

from __future__ import annotations

import gc
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import attrs
import httpx2
import pytest
import trio
import trio_websocket
import trustme
from support.cluster import keeping_chain, lose, open_session, redis_url, rest_of_turn, say
from support.external_programs import Program, free_port, program, redis_server
from support.raw_json import compact
from support.server_clients import Remote, ask, initialize, new_session, prompt, request, texts
from support.smuggling import HTTP1, http1

pytestmark = pytest.mark.external

ROOT = Path(__file__).parents[3]
PATIENCE = 30.0
"""Seconds; only what hangs takes that long."""


@attrs.define
class Cluster:
    """The programs, and how to reach them by way of HAProxy."""

    redis: Program
    haproxy: Program
    nodes: dict[str, Program]
    authority: Path

    @property
    def tls(self) -> ssl.SSLContext:
        """A new one each time: clients put into it which protocols they speak."""
        return ssl.create_default_context(cafile=str(self.authority))

    @property
    def url(self) -> str:
        return f"https://localhost:{self.haproxy.port}"

    def url_of(self, name: str) -> str:
        return f"https://127.0.0.1:{self.nodes[name].port}"

    @asynccontextmanager
    async def websocket(
        self, cookies: dict[str, str] | None = None, **headers: str
    ) -> AsyncIterator[trio_websocket.WebSocketConnection]:
        if cookies:
            headers["cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
        extra = [(name.replace("_", "-").encode(), v.encode()) for name, v in headers.items()]
        url = f"{self.url.replace('http', 'ws', 1)}/acp"
        async with trio_websocket.open_websocket_url(
            url, ssl_context=self.tls, extra_headers=extra
        ) as socket:
            try:
                yield socket
            finally:
                await socket.aclose()
                # trio-websocket leaves a TLS connection open that the other end has lost.
                await lose(socket)

    def http(self, cookies: Any = None) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            base_url=self.url, verify=self.tls, http2=True, cookies=cookies, timeout=PATIENCE
        )

    async def ready(self, name: str) -> bool:
        """Whether a node, asked directly, takes new clients."""
        async with httpx2.AsyncClient(base_url=self.url_of(name), verify=self.tls) as client:
            response = await client.get("/ready")
        return response.status_code == 200


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """For tests that end none of its programs."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path) as cluster:
        yield cluster


@contextmanager
def running_cluster(directory: Path) -> Iterator[Cluster]:
    certificates(directory)
    redis = redis_server(directory)
    nodes = {name: node(name, directory, redis) for name in "ab"}
    haproxy = load_balancer(directory, nodes)
    programs = [redis, *nodes.values(), haproxy]
    try:
        for each in programs:
            each.start()
        yield Cluster(redis, haproxy, nodes, directory / "nodes.pem")
    finally:
        for each in programs:
            each.end()
        gc.collect()  # so that what is not closed is told of here, where it is known


def certificates(directory: Path) -> None:
    authority = trustme.CA()
    ours = authority.issue_cert("localhost", "127.0.0.1")
    authority.cert_pem.write_to_path(str(directory / "nodes.pem"))
    ours.private_key_and_cert_chain_pem.write_to_path(str(directory / "acp.pem"))
    ours.private_key_pem.write_to_path(str(directory / "key.pem"))
    for blob in ours.cert_chain_pems:
        blob.write_to_path(str(directory / "cert.pem"), append=True)


def node(name: str, directory: Path, redis: Program) -> Program:
    chain = directory / f"{name}.yaml"
    chain.write_text(keeping_chain(directory, name))
    port = free_port()
    options = {
        "--listen": f"127.0.0.1:{port}",
        "--sessions": redis_url(redis),
        "--tls-cert": directory / "cert.pem",
        "--tls-key": directory / "key.pem",
        "--drain-timeout": PATIENCE,
    }
    words = [str(word) for pair in options.items() for word in pair]
    argv = [sys.executable, "-m", "conductor", "serve", str(chain), *words]
    environment = {"SSL_CERT_FILE": str(directory / "nodes.pem"), "PYTHONPATH": str(ROOT)}
    return Program(argv, port, "listening on", environment)


def load_balancer(directory: Path, nodes: dict[str, Program]) -> Program:
    port = free_port()
    text = (ROOT / "docs" / "haproxy.cfg").read_text()
    changes = {
        "/etc/haproxy/": f"{directory}/",
        "bind :443": f"bind 127.0.0.1:{port}",
        "10.0.0.11:8765": f"127.0.0.1:{nodes['a'].port}",
        "10.0.0.12:8765": f"127.0.0.1:{nodes['b'].port}",
    }
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path = directory / "haproxy.cfg"
    path.write_text(text)
    return Program([program("haproxy"), "-W", "-db", "-f", str(path)], port, "Loading success")


def cookies_of(socket: trio_websocket.WebSocketConnection) -> dict[str, str]:
    jar = SimpleCookie()
    for name, value in socket.handshake_headers:
        if name.lower() == b"set-cookie":
            jar.load(value.decode())
    return {name: morsel.value for name, morsel in jar.items()}


async def load(socket: trio_websocket.WebSocketConnection, session: str) -> Any:
    """Initialize anew, and load a session; the answer."""
    await ask(socket, initialize())
    params = {"sessionId": session, "cwd": "/", "mcpServers": []}
    return await ask(socket, request(1, "session/load", **params))


async def test_new_clients_are_balanced_and_sticky_by_cookie(cluster):
    with trio.fail_after(PATIENCE):
        async with cluster.websocket() as first, cluster.websocket() as second:
            sessions = [(each, await open_session(each)) for each in (first, second)]
            names = [await say(socket, session, "x") for socket, session in sessions]
            cookies = cookies_of(first)
            assert sorted(names) == ["a: x", "b: x"]
            assert set(cookies) == {"acp_node", "acp_connection"}

            # More clients than one, so that chance alone would hardly bring it back every time.
            sticky = {"acp_node": cookies["acp_node"]}
            for _ in range(4):
                async with cluster.websocket(sticky) as again:
                    assert await say(again, await open_session(again), "x") == names[0]


async def test_an_http_client_comes_back_by_cookie_over_http_2(cluster):
    with trio.fail_after(PATIENCE):
        async with cluster.http() as client:
            remote = await initialized(cluster, client)
            name = client.cookies["acp_node"]
            async with remote.stream() as answers:
                said = [await turn(remote, answers) for _ in range(3)]

    assert said == [f"{name}: hello"] * 3


async def test_an_http_client_without_cookies_comes_back_by_its_connection(own_cluster):
    own_cluster.redis.end()  # so that no other node knows where it is
    with trio.fail_after(PATIENCE):
        async with own_cluster.http() as client:
            remote = await initialized(own_cluster, client, cookies=False)
            for _ in range(4):
                client.cookies.clear()
                response = await remote.post(request(1, "session/list"))
                assert response.status_code == 202


async def test_a_client_at_the_wrong_node_is_forwarded(cluster):
    with trio.fail_after(PATIENCE):
        async with cluster.websocket() as socket, cluster.http() as client:
            session = await open_session(socket)
            cookies = cookies_of(socket)
            remote = await initialized(cluster, client)
            owner = client.cookies["acp_node"]
            await lose(socket)
            for name in "ab":
                async with cluster.websocket({**cookies, "acp_node": name}) as again:
                    assert "result" in await load(again, session)
                    said = await say(again, session, "x")
                    assert first_name(said) == cookies["acp_node"]
                    await lose(again)
            async with remote.stream() as answers:
                for name in "ab":
                    client.cookies.set("acp_node", name, domain="localhost.local")
                    assert await turn(remote, answers) == f"{owner}: hello"


async def test_no_request_is_hidden_in_the_body_of_another(cluster):
    """HAProxy and the node behind it agree where a request ends, or one of them refuses it: a node
    answers no request that HAProxy has not seen."""
    hidden = []
    for odd in HTTP1:
        stream = await trio.open_ssl_over_tcp_stream(
            "localhost", cluster.haproxy.port, ssl_context=cluster.tls, https_compatible=True
        )
        answer = b""
        with suppress(trio.BrokenResourceError):
            await stream.send_all(http1(odd))
            while chunk := await stream.receive_some():
                answer += chunk
        await trio.aclose_forcefully(stream)
        if b" 200 " in answer:  # HAProxy itself answers 404 for /health
            hidden.append((odd, answer))

    assert hidden == []


async def test_clients_of_a_lost_node_load_their_sessions_on_the_other(own_cluster):
    cluster = own_cluster
    with trio.fail_after(PATIENCE):
        async with (
            cluster.websocket() as first,
            cluster.websocket() as second,
            cluster.http() as client,
        ):
            sessions = {}
            for socket in (first, second):
                session = await open_session(socket)
                name = first_name(await say(socket, session, "one"))
                sessions[name] = socket, session, cookies_of(socket)
            _, lost, cookies = sessions["a"]
            kept, session, _ = sessions["b"]
            client.cookies.set("acp_node", "a", domain="localhost.local")
            remote = await initialized(cluster, client)
            lost_by_http = await remote.new_session()

            cluster.nodes["a"].send_signal(signal.SIGKILL)

            assert await say(kept, session, "two") == "b: one two"
            async with cluster.websocket(cookies) as again:
                assert "result" in await load(again, lost)
                assert await say(again, lost, "two") == "b: one two"
            assert await say(kept, session, "three") == "b: one two three"

            with suppress(httpx2.RemoteProtocolError):  # over a TCP connection that it still had
                assert (await remote.post(new_session(1))).status_code == 404
            assert (await remote.post(new_session(1))).status_code == 404
            connected = await initialized(cluster, client)
            loading = request(1, "session/load", sessionId=lost_by_http, cwd="/", mcpServers=[])
            assert "result" in await request_on(connected, loading)


async def test_a_node_that_drains_ends_its_turns_and_new_clients_go_elsewhere(own_cluster):
    with trio.fail_after(PATIENCE):
        async with own_cluster.websocket({"acp_node": "a"}) as busy, own_cluster.http() as client:
            session = await open_session(busy)
            await busy.send_message(compact(prompt("turn", session, "wait")))
            client.cookies.set("acp_node", "a")
            remote = await initialized(own_cluster, client)
            there = await remote.new_session()
            await remote.post(prompt("turn", there, "wait"), there)

            own_cluster.nodes["a"].send_signal(signal.SIGTERM)
            while await own_cluster.ready("a"):
                pass

            # At once, while HAProxy does not know yet, with any cookie.
            for _ in range(4):
                async with own_cluster.websocket({"acp_node": "a"}) as new:
                    assert await say(new, await open_session(new), "hi") == "b: hi"
            async with own_cluster.http(cookies={"acp_node": "a"}) as other:
                moved = await initialized(own_cluster, other)
                async with moved.stream() as answers:
                    assert await turn(moved, answers) == "b: hello"
            await until_down(own_cluster)

            cancel = {"jsonrpc": "2.0", "method": "session/cancel"}
            await busy.send_message(compact({**cancel, "params": {"sessionId": session}}))
            assert await rest_of_turn(busy) == "a: wait"
            async with remote.stream(there) as messages:
                response = await remote.post({**cancel, "params": {"sessionId": there}}, there)
                assert response.status_code == 202
                assert list(texts([await messages.receive()])) == ["a: wait"]
                assert (await messages.receive())["id"] == "turn"
        process = own_cluster.nodes["a"].process
        status = await trio.to_thread.run_sync(process.wait)

    assert status == 128 + signal.SIGTERM


async def until_down(cluster: Cluster) -> None:
    """Until HAProxy has noticed that a node takes no new clients."""
    stdout = cluster.haproxy.process.stdout  # type: ignore[union-attr]
    while "acp/a is stopping" not in await trio.to_thread.run_sync(stdout.readline):
        pass


async def initialized(cluster: Cluster, client: httpx2.AsyncClient, *, cookies: bool = True) -> Any:
    response = await client.post("/acp", json=initialize())
    assert response.status_code == 200
    assert response.http_version == "HTTP/2"
    connection = response.headers["acp-connection-id"]
    return Remote(client, connection, lambda: cluster.http(client.cookies if cookies else None))


async def turn(remote: Remote, answers: trio.MemoryReceiveChannel[Any]) -> str:
    """A prompt in a session of its own; `answers` is the connection's stream."""
    assert (await remote.post(new_session(1))).status_code == 202
    session = (await answers.receive())["result"]["sessionId"]
    async with remote.stream(session) as messages:
        await remote.post(prompt("turn", session, "hello"), session)
        return "".join(texts([await messages.receive()]))


async def request_on(remote: Remote, message: dict[str, Any]) -> Any:
    async with remote.stream() as messages:
        assert (await remote.post(message)).status_code == 202
        with trio.move_on_after(2):
            return await messages.receive()
    async with remote.stream(message["params"]["sessionId"]) as messages:
        return await messages.receive()


def first_name(said: str) -> str:
    return said.partition(":")[0]
