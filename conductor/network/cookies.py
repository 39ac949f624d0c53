"""Cookies of one remote component, kept across its connections: session affinity.

ACP requires cookie support of clients on every transport (RFD streamable HTTP and WebSocket, 5).
The scope rules are those of `http.cookiejar`, which accepts only `urllib` requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from email.message import Message
from http.cookiejar import CookieJar
from urllib.request import Request

from conductor.network.address import RemoteAddress

__all__ = ["cookies_for", "store_cookies"]


class _CookieResponse:
    """The interface of a response that `CookieJar` reads."""

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._message = Message()
        for name, value in headers:
            self._message[name.decode("latin-1")] = value.decode("latin-1")

    def info(self) -> Message:
        return self._message


def cookies_for(address: RemoteAddress, jar: CookieJar) -> str | None:
    """Value of the `Cookie` header for a request to this address, or `None`."""
    request = _request(address)
    jar.add_cookie_header(request)
    return request.get_header("Cookie")


def store_cookies(
    address: RemoteAddress, headers: Iterable[tuple[bytes, bytes]], jar: CookieJar
) -> None:
    """Store the cookies that a response from this address sets. `headers`: raw pairs."""
    jar.extract_cookies(_CookieResponse(headers), _request(address))  # type: ignore[arg-type]


def _request(address: RemoteAddress) -> Request:
    scheme = "https" if address.is_secure else "http"
    return Request(f"{scheme}://{address.authority}{address.target}")
