"""Requests of one Streamable HTTP connection: HTTP version, connection id, retries, errors.

To a conductor, a request is repeated until it is answered, for as long as the server keeps the
connection. When the TCP connection is found dead, the requests in flight are cancelled and repeated
over a new one.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from typing import Final

import attrs
import httpx2
import trio

from conductor.acp import CONNECTION_HEADER
from conductor.network.address import RemoteAddress
from conductor.network.backoff import Backoff
from conductor.network.bounded_http import BodyTooLarge, bounded_client
from conductor.network.sockets import client_keep_alive
from conductor.network.tcp import (
    causes,
    client_context,
    describe_os_error,
    describe_tls_error,
    display_url,
    is_connection_refused,
    network_errors,
    open_stream,
    proxy_for,
)
from conductor.remote.transport import RemoteTransport

__all__ = [
    "JSON_TYPE",
    "RETRY_STATUSES",
    "ClientHttpConnection",
    "HttpClientPool",
]

JSON_TYPE: Final = "application/json"
RETRY_STATUSES: Final = frozenset({408, 425, 502, 503, 504})
"""Retried statuses: from an intermediary, or from a conductor that is draining."""
_PREFACE_TIMEOUT: Final = 2.0
"""Seconds for the response to an HTTP/2 preface."""
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS: Final = 4


class HttpClientPool:
    """HTTP clients for one address: `short` for requests, a `new` one for each long-lived stream.

    ACP asks for HTTP/2 (RFD streamable HTTP, 1). With TLS it is negotiated by ALPN; on plain TCP
    the HTTP/2 preface is tried on a separate connection. The fallback is HTTP/1.1.

    A long-lived stream always has a TCP connection of its own: with three or more streams on one
    HTTP/2 connection, httpcore delivers data of one stream only when data for another arrives,
    because a reader that waits for the socket does not see what another reader has read for it.
    """

    def __init__(
        self, address: RemoteAddress, cookies: CookieJar, ping_timeout: float, max_bytes: int
    ) -> None:
        self._address = address
        self._cookies = cookies
        self._ping_timeout = ping_timeout
        self._max_bytes = max_bytes
        self._http2_only = False
        self._tls: ssl.SSLContext | bool = False
        self._proxy: str | None = None

    async def open(self) -> None:
        """Detect the HTTP version of the server. Raises `Unreachable`."""
        address = self._address
        with network_errors(address):
            self._proxy = proxy_for(address)
            if address.is_secure:
                self._tls = client_context(address.tls)
            elif self._proxy is None:
                self._http2_only = await _supports_http2(address, self._ping_timeout)
        self.short: httpx2.AsyncClient = self.new()

    def new(self) -> httpx2.AsyncClient:
        """A new client; the caller closes it."""
        address = self._address
        transport = httpx2.AsyncHTTPTransport(
            verify=self._tls,
            http1=not self._http2_only,
            http2=address.is_secure or self._http2_only,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
            proxy=self._proxy,
            trust_env=False,
            socket_options=client_keep_alive(self._ping_timeout),
        )
        return bounded_client(
            self._max_bytes,
            transport=transport,
            headers=address.headers,
            cookies=self._cookies,
            timeout=None,
            trust_env=False,
        )

    def why(self, error: httpx2.HTTPError) -> str:
        """Text for a failed request."""
        proxy = "" if self._proxy is None else f"the proxy {display_url(self._proxy)}"
        if proxy and isinstance(error, httpx2.ConnectError):
            return f"{proxy}: {_describe_http_error(error)}"
        if proxy and isinstance(error, httpx2.ProxyError):
            return f"{proxy} refused to connect ({error})"
        return _describe_http_error(error)


@attrs.define(eq=False)
class ClientHttpConnection:
    """`connection`: the id given by the server; `None` before initialization."""

    transport: RemoteTransport
    address: RemoteAddress
    clients: HttpClientPool
    connection: str | None = attrs.field(default=None, init=False)
    last_received: float = attrs.field(factory=trio.current_time, init=False)
    """Time of the last data from the server (trio clock)."""
    backoff: Backoff = attrs.field(
        default=attrs.Factory(
            lambda self: Backoff(location=self.transport.location), takes_self=True
        ),
        init=False,
    )
    _attempts: set[trio.CancelScope] = attrs.field(factory=set, init=False)
    """Requests in flight."""

    @property
    def is_conductor(self) -> bool:
        """Whether the server is a conductor, which keeps a cut connection for a while."""
        return self.backoff.keep > 0

    @property
    def extensions(self) -> dict[str, str]:
        name = self.address.tls.server_name
        return {} if name is None else {"sni_hostname": name}

    async def request(
        self, method: str, headers: dict[str, str], content: bytes | None = None
    ) -> httpx2.Response:
        if content is not None:
            headers["Content-Type"] = headers["Accept"] = JSON_TYPE
        if self.connection is not None:
            headers[CONNECTION_HEADER] = self.connection
        response = await self.clients.short.request(
            method, self.address.url, headers=headers, content=content, extensions=self.extensions
        )
        self.last_received = trio.current_time()
        return response

    async def request_with_retry(
        self, method: str, headers: dict[str, str], content: bytes
    ) -> httpx2.Response:
        """Send a request; repeat it to a conductor until it is answered. Raises `HTTPError`."""
        while True:
            response: httpx2.Response | None = None
            error: httpx2.HTTPError = httpx2.ReadTimeout("it did not answer")
            with self.attempt():
                try:
                    response = await self.request(method, headers, content)
                except BodyTooLarge:
                    raise
                except httpx2.HTTPError as exc:
                    error = exc
            if response is not None and response.status_code not in RETRY_STATUSES:
                self.backoff.reset()
                return response
            refused = response is None and is_connection_refused(error)
            if not await self.backoff.wait_to_retry(refused=refused):
                if response is None:
                    raise error
                return response

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Cancel the block when the connection is found dead (`cut`)."""
        with trio.CancelScope() as scope:
            self._attempts.add(scope)
            try:
                yield
            finally:
                self._attempts.discard(scope)

    def cut(self, nursery: trio.Nursery) -> None:
        """The TCP connection is dead: cancel the requests in flight and use a new HTTP client."""
        dead, self.clients.short = self.clients.short, self.clients.new()
        nursery.start_soon(dead.aclose)
        for scope in self._attempts:
            scope.cancel()

    def fail(self, error: httpx2.HTTPError) -> None:
        """End the connection with this error, without a retry."""
        why = self.clients.why(error)
        if self.transport.reached:
            self.transport.lost(why)
        else:
            self.transport.end(f"could not be reached at {self.transport.location}: {why}")

    async def send_delete(self) -> None:
        """End the connection at the server, unless it is lost. Errors are ignored."""
        if self.connection is None or self.transport.is_lost:
            return
        try:
            await self.request("DELETE", {})
        except httpx2.HTTPError:
            return  # the server detects the end by timeout


def _describe_http_error(error: httpx2.HTTPError) -> str:
    for cause in causes(error):
        if isinstance(cause, ssl.SSLError):
            return describe_tls_error(cause)
        if isinstance(cause, OSError):
            return describe_os_error(cause)
    if isinstance(error, httpx2.ReadError | httpx2.RemoteProtocolError | httpx2.WriteError):
        return "it was cut"
    return str(error) or type(error).__name__


async def _supports_http2(address: RemoteAddress, ping_timeout: float) -> bool:
    stream = await open_stream(address, ping_timeout)
    answer = b""
    try:
        with trio.move_on_after(_PREFACE_TIMEOUT):
            await stream.send_all(_PREFACE)
            while len(answer) < 4 and (chunk := await stream.receive_some(64)):
                answer += chunk
    except trio.BrokenResourceError:
        return False
    finally:
        await trio.aclose_forcefully(stream)
    return len(answer) >= 4 and answer[3] == _SETTINGS
