"""WebSocket frames by hand, right or wrong, and a socket to send them on (RFC 6455 §5.2)."""

from __future__ import annotations

import socket
import struct
from typing import Final

import attrs

from .programs import connected

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
_KEY: Final = b"\x37\xfa\x21\x3d"


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, masked: bool = True
) -> bytes:
    head = bytes([fin << 7 | rsv << 4 | opcode])
    mask, size = masked << 7, len(payload)
    if size < 126:
        head += bytes([mask | size])
    elif size < 65536:
        head += bytes([mask | 126]) + struct.pack("!H", size)
    else:
        head += bytes([mask | 127]) + struct.pack("!Q", size)
    if not masked:
        return head + payload
    return head + _KEY + bytes(byte ^ _KEY[i % 4] for i, byte in enumerate(payload))


def fragments(*parts: bytes, between: bytes = b"", masked: bool = True) -> bytes:
    """One text message in several frames, with others between them."""
    frames = [
        frame(CONTINUATION if i else TEXT, part, fin=i == len(parts) - 1, masked=masked)
        for i, part in enumerate(parts)
    ]
    return between.join(frames)


def close(code: int | None = None, reason: bytes = b"", *, masked: bool = True) -> bytes:
    return frame(CLOSE, (b"" if code is None else struct.pack("!H", code)) + reason, masked=masked)


def read_frames(data: bytes) -> list[tuple[int, bytes]]:
    """The opcodes and payloads of masked frames, as far as they are whole."""
    frames = []
    while len(data) >= 6:
        size, start = data[1] & 127, 2
        if size > 125:
            start = 4 if size == 126 else 10
            size = int.from_bytes(data[2:start])
        key, end = data[start : start + 4], start + 4 + size
        if len(data) < end:
            break
        masked = data[start + 4 : end]
        frames.append((data[0] & 15, bytes(byte ^ key[i % 4] for i, byte in enumerate(masked))))
        data = data[end:]
    return frames


@attrs.define
class Raw:
    """A WebSocket, opened by hand."""

    _socket: socket.socket
    _unread: bytes = b""

    @classmethod
    def ask(cls, address: str, *more: str) -> Raw:
        """One that asks to upgrade, and has not been answered yet."""
        raw = cls(connected(address))
        lines = [
            "GET /acp HTTP/1.1",
            f"Host: {address}",
            "Connection: keep-alive, Upgrade",
            "Upgrade: WebSocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            *more,
        ]
        raw.send("\r\n".join([*lines, "", ""]).encode())
        return raw

    @classmethod
    def open(cls, address: str) -> Raw:
        raw = cls.ask(address)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += raw._read(1)
        assert head.startswith(b"HTTP/1.1 101 "), head
        return raw

    def send(self, data: bytes, *, chop: int = 0) -> None:
        """Send, in pieces of `chop` bytes where it is given."""
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        size = chop or max(len(data), 1)
        for start in range(0, len(data), size):
            self._socket.sendall(data[start : start + size])

    def half_close(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def receive(self) -> tuple[int, bytes] | None:
        """The opcode and the payload of the next frame; None at the end."""
        try:
            first, second = self._read(2)
            size = second & 127
            if size > 125:
                size = int.from_bytes(self._read(2 if size == 126 else 8))
            return first & 15, self._read(size)
        except (EOFError, ConnectionResetError):
            return None

    def receive_all(self) -> list[tuple[int, bytes]]:
        """Every frame until the end."""
        return list(iter(self.receive, None))

    def end(self) -> None:
        self._socket.close()

    def abort(self) -> None:
        """Reset the TCP connection."""
        linger = struct.pack("ii", 1, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._socket.close()

    def _read(self, size: int) -> bytes:
        while len(self._unread) < size:
            more = self._socket.recv(65536)
            if not more:
                raise EOFError
            self._unread += more
        data, self._unread = self._unread[:size], self._unread[size:]
        return data
