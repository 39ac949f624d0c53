"""WebSockets over HTTP/1.1 and HTTP/2; loss of a connection."""

from __future__ import annotations

import json
import socket as stdlib_socket

import pytest
import trio
import trio_websocket
from support.raw_json import compact, dumps
from support.server_clients import (
    PATIENCE,
    ask,
    connect,
    http,
    initialize,
    new_session,
    port_of,
    prompt,
    refusal,
    request,
    serving,
    upgrade,
    websocket,
)

from conductor.server.access import AccessPolicy
from conductor.server.websocket.connection import TrioServerWebSocket

QUICK = {"ping_interval": 0.1, "ping_timeout": 0.2}


async def test_the_upgrade_tells_the_connections_id(tmp_path):
    async with serving(tmp_path) as server, websocket(server) as socket:
        (client,) = server.clients.by_id.values()
        headers = dict(socket.handshake_headers)
        answer = await ask(socket, initialize())

    assert headers[b"acp-connection-id"].decode() == client.id
    assert headers[b"set-cookie"].startswith(b"acp_connection=%b; " % client.id.encode())
    assert "connectionId" not in answer["result"]


async def test_a_turn_arrives_in_order(tmp_path):
    async with serving(tmp_path) as server, websocket(server) as socket:
        await ask(socket, initialize())
        session = (await ask(socket, new_session(1)))["result"]["sessionId"]
        await socket.get_message()
        await socket.send_message(compact(prompt(2, session, "stream 100")))
        got = [json.loads(await socket.get_message()) for _ in range(101)]

    assert {message.get("method") for message in got[:100]} == {"session/update"}
    assert got[100] == {"jsonrpc": "2.0", "id": 2, "result": {"stopReason": "end_turn"}}


async def test_clients_of_stdio_to_ws_connect_to_another_path(tmp_path):
    async with serving(tmp_path) as server, websocket(server, path="/message") as socket:
        await socket.send_message(dumps(initialize()) + b"\n")
        answer = json.loads(await socket.get_message())
        other = await ask(socket, request(1, "session/list"))

    assert answer["result"]["agentInfo"]["name"] == "test-agent"
    assert other["id"] == 1


async def test_a_text_is_a_line_even_if_it_has_several(tmp_path):
    async with serving(tmp_path) as server, websocket(server) as socket:
        await socket.send_message(json.dumps(initialize(), indent=2))
        answer = json.loads(await socket.get_message())

    assert answer["id"] == 0


async def test_a_batch_is_one_text(tmp_path):
    async with serving(tmp_path) as server, websocket(server) as socket:
        await ask(socket, initialize())
        await socket.send_message(compact([request(1, "session/list"), request(2, "_no/such")]))
        answers = json.loads(await socket.get_message())

    assert sorted(answer["id"] for answer in answers) == [1, 2]


async def test_binary_messages_are_ignored_and_invalid_ones_answered(tmp_path):
    async with serving(tmp_path) as server, websocket(server) as socket:
        await socket.send_message(b"binary")
        await socket.send_message("nonsense")
        malformed = json.loads(await socket.get_message())
        answer = await ask(socket, initialize())

    assert (malformed["id"], malformed["error"]["code"]) == (None, -32700)
    assert answer["id"] == 0


async def test_a_message_that_is_too_long_closes_the_socket(tmp_path):
    async with (
        serving(tmp_path, limits={"message_bytes": 1000}) as server,
        websocket(server) as socket,
    ):
        await socket.send_message("x" * 1001)
        with pytest.raises(trio_websocket.ConnectionClosed) as caught:
            await socket.get_message()

    assert caught.value.reason.code == 1009


async def test_an_origin_that_is_not_allowed_is_refused(tmp_path):
    async with serving(tmp_path) as server:
        refused = await refusal(server, Origin="https://evil.example")

    assert refused == (403, "the Origin is not allowed (see --allow-origin)")


async def test_an_allowed_origin_is_admitted(tmp_path):
    access = AccessPolicy(origins=frozenset({"https://app.example.org"}))
    async with (
        serving(tmp_path, access=access) as server,
        websocket(server, ("Origin", "https://app.example.org")) as socket,
    ):
        assert (await ask(socket, initialize()))["id"] == 0


async def test_an_unknown_host_name_is_refused(tmp_path):
    async with serving(tmp_path) as server:
        refused = await refusal(server, Host="evil.example")

    assert refused == (421, "the Host header names no host of this server (see --host)")


async def test_another_path_is_refused(tmp_path):
    async with serving(tmp_path) as server:
        assert await refusal(server, "/other") == (404, "there is only /acp")


async def test_a_normal_close_ends_the_chain(tmp_path):
    async with serving(tmp_path) as server:
        async with websocket(server) as socket:
            await ask(socket, initialize())
            (client,) = server.clients.by_id.values()
        await client.ended.wait()

        assert client.ending is not None
        assert server.clients.by_id == {}


async def test_a_lost_client_is_kept_for_a_while(tmp_path):
    async with serving(tmp_path, timeouts={"keep": 0.3}) as server, websocket(server) as socket:
        await ask(socket, initialize())
        (client,) = server.clients.by_id.values()
        await socket._stream.aclose()
        await client.detached.wait()
        assert not client.attached
        assert client.detached_since is not None
        assert server.clients.find(client.id) is client
        await client.ended.wait()
        assert trio.current_time() - client.detached_since >= 0.3
        assert server.clients.find(client.id) is None


async def test_a_peer_that_answers_no_ping_is_detached(tmp_path):
    """A raw socket that does the handshake and then never answers a ping."""
    async with serving(tmp_path, timeouts=QUICK) as server:
        stream = await upgrade(server)
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 101 ")
        (client,) = server.clients.by_id.values()
        began = trio.current_time()
        await client.detached.wait()

        assert 0.2 <= trio.current_time() - began < PATIENCE
        await stream.aclose()


@pytest.mark.slow
async def test_progress_of_a_slow_message_counts_as_a_pong(tmp_path):
    """Neither is a ping answered, which waits behind the message, nor does it matter."""
    from wsproto.connection import Connection, ConnectionType
    from wsproto.events import TextMessage

    timeouts = {"ping_interval": 0.1, "ping_timeout": 1.0}
    async with (
        serving(tmp_path, timeouts=timeouts) as server,
        await upgrade(server, receive_buffer=4096) as stream,
    ):
        assert (await stream.receive_some(4096)).startswith(b"HTTP/1.1 101 ")
        link = Connection(ConnectionType.CLIENT)
        for message in (initialize(), new_session(1), prompt(2, "session-1", "stream 9 900000")):
            await stream.send_all(link.send(TextMessage(compact(message))))
        (client,) = server.clients.by_id.values()
        began = trio.current_time()
        while trio.current_time() - began < 2 * sum(timeouts.values()):
            assert await stream.receive_some(65536)
            assert client.attached
            await trio.sleep(0.01)
        await client.detached.wait()  # now that nothing is read
        server.clients.kill()


async def test_a_peer_that_answers_pings_stays_connected(tmp_path, monkeypatch):
    ping, answered, five = TrioServerWebSocket.ping, [], trio.Event()

    async def counted(self, deadline):
        await ping(self, deadline)
        answered.append(deadline)
        if len(answered) == 5:
            five.set()

    monkeypatch.setattr(TrioServerWebSocket, "ping", counted)
    async with serving(tmp_path, timeouts=QUICK) as server, websocket(server) as socket:
        await ask(socket, initialize())
        await five.wait()
        (client,) = server.clients.by_id.values()

        assert client.attached
        assert (await ask(socket, request(1, "session/list")))["id"] == 1


async def test_a_peer_that_does_not_read_delays_neither_others_nor_the_stop(tmp_path):
    """What hypercorn sends is shielded; closing the socket frees it."""
    async with serving(tmp_path) as server, websocket(server) as other:
        port = port_of(server)
        peer_closed_read = stdlib_socket.create_connection(("127.0.0.1", port))
        async with http(server, 1) as client:
            response = await client.post("/acp", json=initialize())
            id = response.headers["acp-connection-id"]
            named = {"acp-connection-id": id}
            await client.post("/acp", json=new_session(1), headers=named)
            peer_closed_read.sendall(
                f"GET /acp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
                f"Acp-Connection-Id: {id}\r\nAcp-Session-Id: session-1\r\n\r\n".encode()
            )
            message = prompt(2, "session-1", "stream 4000 10000")
            named["acp-session-id"] = "session-1"
            await client.post("/acp", json=message, headers=named)
        await ask(other, initialize())
        server.clients.kill()
    peer_closed_read.close()


async def test_websocket_over_http_2(tmp_path):
    """RFC 8441: what a browser does when it has an HTTP/2 connection."""
    import h2.config
    import h2.connection
    import h2.events
    from wsproto.connection import Connection, ConnectionType
    from wsproto.events import TextMessage

    async with serving(tmp_path) as server:
        port = port_of(server)
        stream = await connect(server)
        peer = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        peer.initiate_connection()
        await stream.send_all(peer.data_to_send())
        while not peer.remote_settings.enable_connect_protocol:
            peer.receive_data(await stream.receive_some())
        peer.send_headers(
            1,
            [
                (":method", "CONNECT"),
                (":protocol", "websocket"),
                (":scheme", "http"),
                (":path", "/acp"),
                (":authority", f"127.0.0.1:{port}"),
                ("sec-websocket-version", "13"),
            ],
        )
        websocket = Connection(ConnectionType.CLIENT)
        await stream.send_all(peer.data_to_send())
        headers: dict[bytes, bytes] = {}
        texts: list[str] = []
        while not texts:
            for event in peer.receive_data(await stream.receive_some()):
                if isinstance(event, h2.events.ResponseReceived):
                    headers = dict(event.headers)
                    peer.send_data(1, websocket.send(TextMessage(compact(initialize()))))
                    await stream.send_all(peer.data_to_send())
                if isinstance(event, h2.events.DataReceived):
                    websocket.receive_data(event.data)
                    texts += [each.data for each in websocket.events() if type(each) is TextMessage]
        await stream.aclose()

    assert headers[b":status"] == b"200"
    assert headers[b"acp-connection-id"]
    assert json.loads(texts[0])["id"] == 0
