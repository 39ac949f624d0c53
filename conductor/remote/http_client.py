"""HTTP clients for one address: TLS, proxies, cookies, and the version of HTTP.

ACP asks for HTTP/2 (RFD streamable HTTP, 1). With TLS it is negotiated by ALPN; on plain TCP the
HTTP/2 preface is tried on a separate connection. The fallback is HTTP/1.1.

A long-lived stream always has a TCP connection of its own: with three or more streams on one HTTP/2
connection, httpcore delivers data of one stream only when data for another arrives, because a
reader that waits for the socket does not see what another reader has read for it.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from http.cookiejar import CookieJar
from typing import Final

import httpx2
import trio

from conductor.network.address import RemoteAddress
from conductor.network.bounded_http import bounded_client
from conductor.network.http_proxy import display_url, proxy_for
from conductor.network.keepalive import client_keep_alive
from conductor.network.tcp import describe_os_error, network_errors, open_stream
from conductor.network.tls import client_context, describe_tls_error

__all__ = ["HttpClientPool"]

_PREFACE_TIMEOUT: Final = 2.0
"""Seconds for the response to an HTTP/2 preface."""
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS: Final = 4


class HttpClientPool:
    """One client for short requests (`short`), and one for each long-lived stream (`new`)."""

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


def _describe_http_error(error: httpx2.HTTPError) -> str:
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLError):
            return describe_tls_error(cause)
        if isinstance(cause, OSError):
            return describe_os_error(cause)
    if isinstance(error, httpx2.ReadError | httpx2.RemoteProtocolError | httpx2.WriteError):
        return "it was cut"
    return str(error) or type(error).__name__


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


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
