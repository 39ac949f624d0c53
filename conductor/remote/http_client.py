"""HTTP clients for one address: TLS, proxies, cookies, and the version of HTTP that is spoken.

ACP asks for HTTP/2 (RFD streamable HTTP, 1); with TLS both ends agree on it (ALPN), on plain TCP we
have to know: the preface of HTTP/2 is tried on a connection of its own. HTTP/1.1 is spoken with a
server that has nothing else.

A stream that stays open has a connection for itself in any case: of three or more on a connection
of HTTP/2, httpcore hands what arrived for one to its reader only when there is something for
another, because whoever waits in line for the socket does not see what was read for him before.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from http.cookiejar import CookieJar
from typing import Final

import httpx2
import trio

from conductor.network.address import RemoteAddress
from conductor.network.http_proxy import display_url, proxy_for
from conductor.network.keepalive import client_keep_alive
from conductor.network.tcp import describe_os_error, network_errors, open_stream
from conductor.network.tls import client_context, describe_tls_error

__all__ = ["HttpClientPool"]

_PREFACE_TIMEOUT: Final = 2.0
"""Seconds for the answer to a preface of HTTP/2."""
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS: Final = 4


class HttpClientPool:
    """One client for what is short, `short`, and one for each stream that stays open."""

    def __init__(self, address: RemoteAddress, cookies: CookieJar, ping_timeout: float) -> None:
        self._address = address
        self._cookies = cookies
        self._ping_timeout = ping_timeout
        self._http2_only = False
        self._tls: ssl.SSLContext | bool = False
        self._proxy: str | None = None

    async def open(self) -> None:
        """Find out what the server speaks. Raises `Unreachable`."""
        address = self._address
        with network_errors(address):
            self._proxy = proxy_for(address)
            if address.is_secure:
                self._tls = client_context(address.tls)
            elif self._proxy is None:
                self._http2_only = await _supports_http2(address, self._ping_timeout)
        self.short = self.new()

    def new(self) -> httpx2.AsyncClient:
        """A client, to be closed by whoever asks for it."""
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
        return httpx2.AsyncClient(
            transport=transport,
            headers={"Accept-Encoding": "identity", **address.headers},
            cookies=self._cookies,
            timeout=None,
            trust_env=False,
        )

    def why(self, error: httpx2.HTTPError) -> str:
        """Why a request failed."""
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
