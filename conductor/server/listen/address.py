"""Listen addresses: `HOST:PORT`, `[IPv6]:PORT` or `unix:PATH`; bind."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Final

import attrs
import trio

__all__ = [
    "TcpAddress",
    "UnixAddress",
    "bind_tcp",
    "listener_url",
    "parse_address",
]

_BACKLOG: Final = 1024


@attrs.frozen
class TcpAddress:
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


@attrs.frozen
class UnixAddress:
    path: str


def parse_address(text: str) -> TcpAddress | UnixAddress:
    """Parse a listen address. Raises `ValueError`."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path:
            raise ValueError("unix: needs a path, as in unix:/run/acp.sock")
        return UnixAddress(path)
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not host or (":" in host and not bracketed):
        raise ValueError(f"{text!r} is not HOST:PORT, [IPv6]:PORT or unix:PATH")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r}: {port!r} is not a port")
    return TcpAddress(host[1:-1] if bracketed else host, int(port))


async def bind_tcp(address: TcpAddress) -> list[trio.SocketListener]:
    """Listeners on every address of the host name. Raises `OSError`."""
    try:
        found = await trio.open_tcp_listeners(address.port, host=address.host, backlog=_BACKLOG)
    except socket.gaierror as exc:
        where = f"{address.host}:{address.port}"
        raise OSError(errno.EADDRNOTAVAIL, exc.strerror, where) from None
    except OSError as exc:
        where = f"{address.host}:{address.port}"
        raise OSError(exc.errno, exc.strerror or str(exc), where) from None
    return found


def listener_url(listener: trio.SocketListener, *, secure: bool) -> str:
    """URL of a listener with its actual port."""
    host, port = listener.socket.getsockname()[:2]
    if ":" in host:
        host = f"[{host}]"
    return f"{'https' if secure else 'http'}://{host}:{port}/acp"
