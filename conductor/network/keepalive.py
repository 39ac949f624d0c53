"""TCP keep-alive: socket options by which the kernel detects a dead peer on an idle connection."""

from __future__ import annotations

import socket
from typing import TypeAlias

__all__ = ["SocketOption", "client_keep_alive", "keep_alive_options"]

SocketOption: TypeAlias = tuple[int, int, int]
"""Arguments of `setsockopt`: level, name, value."""


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
