"""The user id of the process at the other end of a connection on this machine (Linux).

For a TCP connection, the kernel is asked by netlink (`sock_diag(7)`) for the one socket with these
addresses: 60 µs, however many connections there are. Without its module for TCP, the table in /proc
is read.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from typing import Any, Final, TypeAlias

__all__ = ["NO_USER", "is_same_user", "peer_user", "user_at"]

_Address: TypeAlias = tuple[bytes, int]
"""The packed address, and the port."""
NO_USER: Final = -1
"""The other end is on this machine, and closed: the kernel no longer knows its user."""
_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
_ANY_COOKIE: Final = b"\xff" * 8
_HEADER: Final = struct.Struct("=IHHII")
_REQUEST: Final = struct.Struct("=BBBBI")
_USER_AND_INODE: Final = struct.Struct("=II")
_AT_USER: Final = _HEADER.size + 64
"""Offset of `idiag_uid` in the answer, behind the sizes of the queues."""


def is_same_user(connection: Any) -> bool:
    """Whether the other end of a Unix socket belongs to this user. Where it cannot be asked, the
    mode of the socket's directory has decided."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    size = struct.calcsize("3i")
    try:
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, size))
    except OSError:
        return False  # it is gone already
    return bool(user == os.geteuid())


def peer_user(connection: Any) -> int | None:
    """The user id of the other end, `NO_USER` if it has closed its socket, `None` if it is on
    another machine, or if the kernel cannot be asked."""
    try:
        return user_at(connection.getpeername(), connection.getsockname())
    except OSError:
        return None


def user_at(remote: Any, local: Any) -> int | None:
    """The same, by the addresses of the two ends: host and port."""
    if sys.platform != "linux":
        return None
    try:
        source, target = _packed(remote[0]), _packed(local[0])
        if source != target and not _is_loopback(remote[0]):
            return None
        there, here = (source, remote[1]), (target, local[1])
        user = _ask(there, here)
        if user == NO_USER and _ask(here, there) == NO_USER:  # not even this end is found
            return _from_table(there, here)
    except OSError:
        return None
    return user


def _ask(source: _Address, target: _Address) -> int:
    """Raises `OSError` if netlink cannot be used."""
    family = socket.AF_INET if len(source[0]) == 4 else socket.AF_INET6
    ports = struct.pack(">HH", source[1], target[1])
    addresses = source[0].ljust(16, b"\0") + target[0].ljust(16, b"\0")
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
    body += ports + addresses + bytes(4) + _ANY_COOKIE
    header = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.sendto(header + body, (0, 0))
        answer = kernel.recv(4096)
    if _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return NO_USER  # an error: there is no such socket
    user, inode = _USER_AND_INODE.unpack_from(answer, _AT_USER)
    return int(user) if inode else NO_USER  # of a closed socket, the user is 0


def _from_table(source: _Address, target: _Address) -> int:
    """Raises `OSError` if the table cannot be read."""
    wanted = _as_in_table(source), _as_in_table(target)
    for name in ("tcp", "tcp6"):
        with open(f"/proc/net/{name}") as table:
            for line in table:
                _, local, remote, _, _, _, _, user, _, inode, *_ = [*line.split(), *[""] * 9]
                if local.endswith(wanted[0]) and remote.endswith(wanted[1]):
                    return int(user) if inode != "0" else NO_USER
    return NO_USER


def _as_in_table(address: _Address) -> str:
    """The address in hexadecimal, by words in the machine's byte order."""
    words = struct.unpack(f"={len(address[0]) // 4}I", address[0])
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"


def _packed(address: str) -> bytes:
    address = address.removeprefix("::ffff:").partition("%")[0]
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def _is_loopback(address: str) -> bool:
    return address.removeprefix("::ffff:").startswith("127.") or address == "::1"
