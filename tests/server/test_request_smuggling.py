"""Requests that another HTTP implementation, such as a reverse proxy, could read as two."""

from __future__ import annotations

import h2.config
import h2.connection
import h2.events
import pytest
import trio
from support.server_clients import serving
from support.smuggling import HTTP1, HTTP2, http1, http2_headers

from conductor.server.run import RunningServer
from conductor.token_bucket import TokenBucket


async def connect(server: RunningServer) -> tuple[trio.SocketStream, bytes]:
    host, _, port = server.addresses[0].removeprefix("http://").removesuffix("/acp").rpartition(":")
    return await trio.open_tcp_stream(host, int(port)), f"{host}:{port}".encode()


@pytest.mark.parametrize("odd", HTTP1)
async def test_a_body_with_an_uncertain_end_is_refused_and_its_connection_closed(tmp_path, odd):
    async with serving(tmp_path) as server:
        stream, host = await connect(server)
        async with stream:
            await stream.send_all(http1(odd, host))
            answer = b"".join([chunk async for chunk in stream])

    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 "))
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("odd", HTTP2)
async def test_headers_that_http_1_would_read_differently_are_refused(tmp_path, odd):
    events: list[h2.events.Event] = []
    async with serving(tmp_path) as server:
        stream, host = await connect(server)
        config = h2.config.H2Configuration(
            validate_outbound_headers=False, normalize_outbound_headers=False
        )
        connection = h2.connection.H2Connection(config)
        connection.initiate_connection()
        connection.send_headers(1, http2_headers(odd, host))
        connection.send_data(1, b"{}", end_stream=True)
        async with stream:
            await stream.send_all(connection.data_to_send())
            async for chunk in stream:
                events += connection.receive_data(chunk)

    assert any(isinstance(each, h2.events.ConnectionTerminated) for each in events)
    assert not any(isinstance(each, h2.events.ResponseReceived) for each in events)


async def test_a_request_that_hypercorn_fails_on_is_logged_at_a_limited_rate(tmp_path, capfd):
    from conductor import log

    log.configure("info")
    connect_request = [(":method", "CONNECT"), (":authority", "localhost:1")]
    began = trio.current_time()
    async with serving(tmp_path) as server:
        for _ in range(60):
            stream, _ = await connect(server)
            connection = h2.connection.H2Connection()
            connection.initiate_connection()
            connection.send_headers(1, connect_request, end_stream=True)
            async with stream:
                await stream.send_all(connection.data_to_send())
                with trio.move_on_after(2):
                    async for _ in stream:
                        pass

    allowed = 1 + TokenBucket().rate * (1 + trio.current_time() - began)
    assert 1 <= capfd.readouterr().err.count("connection failed") <= allowed
