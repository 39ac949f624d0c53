"""TCP and Unix sockets: accept connections, and let the kernel detect a dead peer (keep-alive)."""

from __future__ import annotations

import errno
import socket
from typing import Final, TypeAlias

import trio

from conductor.log import get_logger

__all__ = ["SocketOption", "accept", "client_keep_alive", "keep_alive_options"]

SocketOption: TypeAlias = tuple[int, int, int]
"""Arguments of `setsockopt`: level, name, value."""
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_RETRY_SECONDS: Final = 0.1

log: Final = get_logger(component="network")


async def accept(listener: trio.SocketListener) -> trio.SocketStream:
    """Accept the next connection; retry while descriptors or memory are exhausted.

    Then `accept` fails whether or not a client waits. It is logged once, and once more when a
    connection is accepted again.
    """
    failed_since: float | None = None
    while True:
        try:
            stream = await listener.accept()
        except OSError as exc:
            if exc.errno not in _OUT_OF_RESOURCES:
                raise
            if failed_since is None:
                failed_since = trio.current_time()
                log.warning("accept failed", error=exc.strerror)
            await trio.sleep(_RETRY_SECONDS)
            continue
        if failed_since is not None:
            seconds = round(trio.current_time() - failed_since, 1)
            log.warning("accept works again", seconds=seconds)
        return stream


def keep_alive_options(
    *, idle: float, interval: float, probes: int, user_timeout: float | None = None
) -> list[SocketOption]:
    """Socket options for keep-alive, without those that the platform does not have.

    `idle`: seconds without traffic before the first probe; `interval`: seconds between probes;
    `probes`: unanswered probes after which the connection is reset. `user_timeout`: seconds that
    written data may stay unacknowledged (`TCP_USER_TIMEOUT`); on Linux it also ends a connection
    to a peer that is alive and reads slowly.
    """
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    values = {
        "TCP_KEEPIDLE": max(1, round(idle)),
        "TCP_KEEPINTVL": max(1, round(interval)),
        "TCP_KEEPCNT": probes,
    }
    if user_timeout is not None:
        values["TCP_USER_TIMEOUT"] = max(1, round(user_timeout)) * 1000
    for name, value in values.items():
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def client_keep_alive(ping_timeout: float) -> list[SocketOption]:
    """Options for a connection to a server: a dead one is detected within `ping_timeout` seconds.

    Without a user timeout, since the server may read slowly.
    """
    return keep_alive_options(idle=ping_timeout / 3, interval=ping_timeout / 3, probes=2)
