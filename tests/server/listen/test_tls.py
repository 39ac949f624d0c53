"""TLS: HTTP/2 by ALPN, secure cookies, certificates of clients."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import httpx2
import pytest
import trio
import trio_websocket
import trustme
from support.server_clients import PATIENCE, ask, connect, initialize, serving

from conductor import log
from conductor.network.tcp import server_context
from conductor.server.access import AccessPolicy
from conductor.server.run import RunningServer


@attrs.frozen
class Certificates:
    """An authority, what it gave the server, and what it gives clients."""

    ca: trustme.CA
    directory: Path

    @classmethod
    def make(cls, directory: Path) -> Certificates:
        ca = trustme.CA()
        issued = ca.issue_cert("localhost", "127.0.0.1")
        issued.private_key_pem.write_to_path(str(directory / "key.pem"))
        issued.cert_chain_pems[0].write_to_path(str(directory / "cert.pem"))
        ca.cert_pem.write_to_path(str(directory / "ca.pem"))
        return cls(ca, directory)

    def server(self, *, clients: bool = False) -> ssl.SSLContext:
        cert, key, ca = (str(self.directory / f"{name}.pem") for name in ("cert", "key", "ca"))
        return server_context(cert, key, ca if clients else None)

    def client(self, name: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        if name is not None:
            self.ca.issue_cert(f"{name}@example.org", common_name=name).configure_cert(context)
        return context


def http(server: RunningServer, context: ssl.SSLContext, **options: Any) -> Any:
    url = server.addresses[0].removesuffix("/acp")
    return httpx2.AsyncClient(base_url=url, verify=context, timeout=PATIENCE, **options)


@pytest.mark.parametrize(("http2", "version"), [(True, "HTTP/2"), (False, "HTTP/1.1")])
async def test_the_version_of_http_is_agreed_on_by_alpn(tmp_path, http2, version):
    certificates = Certificates.make(tmp_path)
    async with (
        serving(tmp_path, tls=certificates.server()) as server,
        http(server, certificates.client(), http2=http2) as client,
    ):
        response = await client.post("/acp", json=initialize())

    assert server.addresses[0].startswith("https://")
    assert response.http_version == version
    assert response.headers["set-cookie"].endswith("; Secure")


async def test_websocket_over_tls(tmp_path):
    certificates = Certificates.make(tmp_path)
    async with serving(tmp_path, tls=certificates.server()) as server:
        url = server.addresses[0].replace("http", "ws", 1)
        async with trio_websocket.open_websocket_url(url, certificates.client()) as socket:
            assert (await ask(socket, initialize()))["id"] == 0


async def test_a_certificate_of_the_authority_is_required(tmp_path):
    certificates = Certificates.make(tmp_path)
    access = AccessPolicy(certificates=True)
    async with serving(tmp_path, tls=certificates.server(clients=True), access=access) as server:
        async with http(server, certificates.client("laptop")) as client:
            known = await client.post("/acp", json=initialize())
        async with http(server, certificates.client()) as client:
            unknown = await client.post("/acp", json=initialize())
            health = await client.get("/health")

    assert known.status_code == 200
    assert (unknown.status_code, unknown.text) == (401, "a client certificate is required")
    assert health.status_code == 200


async def test_a_certificate_of_another_authority_is_refused(tmp_path, capsys):
    log.configure("info")
    certificates = Certificates.make(tmp_path)
    access = AccessPolicy(certificates=True)
    context = certificates.client()
    trustme.CA().issue_cert("laptop@example.org", common_name="laptop").configure_cert(context)
    async with (
        serving(tmp_path, tls=certificates.server(clients=True), access=access) as server,
        http(server, context) as client,
    ):
        with pytest.raises(httpx2.TransportError):
            await client.post("/acp", json=initialize())
    said = capsys.readouterr().err
    assert "client certificate refused" in said
    assert "unable to get local issuer certificate" in said


async def test_a_connection_without_tls_is_closed(tmp_path):
    certificates = Certificates.make(tmp_path)
    async with serving(tmp_path, tls=certificates.server()) as server:
        async with await connect(server) as stream:
            await stream.send_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await stream.receive_some() in (b"", await stream.receive_some())
        async with http(server, certificates.client()) as client:
            assert (await client.get("/health")).status_code == 200


async def test_an_http2_connection_that_says_nothing_is_closed_after_the_time_for_heads(tmp_path):
    certificates = Certificates.make(tmp_path)
    context = certificates.client()
    context.set_alpn_protocols(["h2"])
    async with serving(tmp_path, tls=certificates.server(), timeouts={"headers": 0.3}) as server:
        host, _, port = server.addresses[0].split("/")[2].rpartition(":")
        stream = await trio.open_ssl_over_tcp_stream(
            host, int(port), ssl_context=context, https_compatible=True
        )
        await stream.do_handshake()
        with trio.fail_after(PATIENCE), suppress(trio.BrokenResourceError):
            assert await stream.receive_some() == b""
        await trio.aclose_forcefully(stream)
