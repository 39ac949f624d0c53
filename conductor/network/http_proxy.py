"""HTTP proxies from the environment (`http_proxy`, `https_proxy`, `all_proxy`, `no_proxy`), and
tunnels through them (`CONNECT`, RFC 9110 §9.3.6)."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, urlsplit
from urllib.request import (  # type: ignore[attr-defined]  # typeshed has only one of them
    getproxies_environment,
    proxy_bypass_environment,
)

import trio

from conductor.network.address import RemoteAddress, basic_authorization

__all__ = ["HttpProxyError", "display_url", "open_tunnel", "proxy_for"]

_MAX_HEAD: Final = 64 * 1024


class HttpProxyError(Exception):
    """The proxy cannot be used, or refused the tunnel."""


def proxy_for(address: RemoteAddress) -> str | None:
    """URL of the proxy for this address, or `None`. Raises `HttpProxyError`."""
    proxies = getproxies_environment()
    if proxy_bypass_environment(f"{address.host}:{address.port}", proxies):
        return None
    url = proxies.get("https" if address.is_secure else "http") or proxies.get("all")
    if not url:
        return None
    url = url if "://" in url else f"http://{url}"
    if urlsplit(url).scheme not in ("http", "https"):
        raise HttpProxyError(
            f"the proxy {display_url(url)} of the environment is not an HTTP proxy"
        )
    return url


async def open_tunnel(stream: trio.abc.Stream, proxy: str, address: RemoteAddress) -> None:
    """Ask the proxy at the other end of `stream` for a tunnel. Raises `HttpProxyError`."""
    parts = urlsplit(proxy)
    target = f"{f'[{address.host}]' if ':' in address.host else address.host}:{address.port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if parts.username is not None:
        lines.append(f"Proxy-Authorization: {basic_authorization(parts.username, parts.password)}")
    await stream.send_all("\r\n".join([*lines, "", ""]).encode())
    answer = await _read_head(stream)
    status = answer.partition(b"\r\n")[0].split(None, 2)
    if len(status) < 2 or not status[1].startswith(b"2"):
        words = b" ".join(status[1:]).decode("latin-1")
        raise HttpProxyError(f"the proxy {display_url(proxy)} refused to connect ({words})")


async def _read_head(stream: trio.abc.Stream) -> bytes:
    """Read the head of the response. Byte by byte: the bytes after it belong to the tunnel."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = await stream.receive_some(1)
        if not byte or len(head) > _MAX_HEAD:
            raise HttpProxyError("the proxy closed the connection without an answer")
        head += byte
    return head


def display_url(url: str) -> str:
    """The URL of a proxy without its user part, for logs and errors."""
    parts: SplitResult = urlsplit(url)
    return (
        f"{parts.scheme}://{parts.hostname}:{parts.port}" if parts.port else parts.hostname or url
    )
