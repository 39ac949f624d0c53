"""TLS with real certificates: verification and client certificates."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
import trio_websocket
import trustme
from remote.test_error_messages import why_it_does_not_start
from support.remote_agents import reach

from conductor.chainfile.model import Tls
from conductor.network.tcp import TlsConfigError, client_context

ANSWER = '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentInfo":{"name":"tls"}}}'


@attrs.define
class Authority:
    """A certificate authority, and the files of what it signed."""

    directory: Path
    ca: trustme.CA = attrs.field(factory=trustme.CA)

    @property
    def file(self) -> str:
        path = self.directory / "ca.pem"
        self.ca.cert_pem.write_to_path(path)
        return str(path)

    def context(self, name: str) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.ca.issue_cert(name).configure_cert(context)
        return context

    def client(self) -> tuple[str, str]:
        """The client certificate and its key."""
        issued = self.ca.issue_cert("me@example.org", common_name="me")
        cert, key = self.directory / "me.pem", self.directory / "me.key"
        issued.cert_chain_pems[0].write_to_path(cert)
        issued.private_key_pem.write_to_path(key)
        return str(cert), str(key)


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@asynccontextmanager
async def websocket_server(context: ssl.SSLContext) -> AsyncIterator[str]:
    """Answers the first message as an agent would `initialize`."""

    async def handle(request: trio_websocket.WebSocketRequest) -> None:
        socket = await request.accept()
        await socket.get_message()
        await socket.send_message(ANSWER)
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        server = await nursery.start(
            trio_websocket.serve_websocket, handle, "127.0.0.1", 0, context
        )
        yield f"wss://127.0.0.1:{server.port}/acp"
        nursery.cancel_scope.cancel()


async def test_a_certificate_of_an_authority_that_is_named_is_trusted(authority):
    async with (
        websocket_server(authority.context("127.0.0.1")) as url,
        reach(connect=url, tls=Tls(ca=authority.file)) as client,
    ):
        answer = await client.initialize()

    assert answer["agentInfo"] == {"name": "tls"}


async def test_a_certificate_of_an_unknown_authority_is_refused_with_a_remedy(authority):
    async with websocket_server(authority.context("127.0.0.1")) as url:
        error = await why_it_does_not_start(connect=url)

    assert f"could not be reached at {url}: its certificate is not trusted (" in error.message
    assert "`tls: {ca: …}`, or `--ca`, names the authority" in error.message


async def test_a_certificate_for_another_name_is_refused_unless_that_name_is_expected(authority):
    async with websocket_server(authority.context("agents.internal")) as url:
        error = await why_it_does_not_start(connect=url, tls=Tls(ca=authority.file))
        named = Tls(ca=authority.file, server_name="agents.internal")
        async with reach(connect=url, tls=named) as client:
            await client.initialize()

    assert "its certificate is not trusted (" in error.message
    assert "127.0.0.1" in error.message


async def test_certificate_verification_can_be_switched_off(authority):
    async with (
        websocket_server(authority.context("else.where")) as url,
        reach(connect=url, tls=Tls(verify=False)) as client,
    ):
        await client.initialize()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_server_that_asks_for_a_client_certificate_gets_it(authority, version):
    context = authority.context("127.0.0.1")
    context.verify_mode = ssl.CERT_REQUIRED
    context.maximum_version = version
    authority.ca.configure_trust(context)
    cert, key = authority.client()
    async with (
        websocket_server(context) as url,
        reach(connect=url, tls=Tls(authority.file, cert, key)) as client,
    ):
        await client.initialize()


@pytest.mark.parametrize(
    ("tls", "key"),
    [
        (Tls(ca="/no/such/file"), "ca"),
        (Tls(cert="/no/such/file"), "cert"),
        (Tls(ca=__file__), "ca"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tls, key):
    with pytest.raises(TlsConfigError, match=rf"`tls\.{key}` cannot be used: /.*: "):
        client_context(tls)


async def test_a_file_that_cannot_be_used_is_a_failure_to_start():
    error = await why_it_does_not_start(connect="wss://127.0.0.1:1", tls=Tls(ca="/no/such/file"))

    assert "`tls.ca` cannot be used: /no/such/file: No such file or directory" in error.message
