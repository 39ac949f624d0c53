"""Listener for shims, with authentication.

A Unix socket in a private directory (mode 0700), created for the first declaration. A peer must run
as the same user and send, in its first line, the valid token of a declaration; any other connection
is closed without a byte. A token belongs to one declaration of one session set-up and is revoked
when the declaration is released. It may be used several times, because an agent may start several
processes for one declaration.

The conductor holds a lock on the directory, by which `acp-conductor ps` finds those that killed
conductors have left.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import socket
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import attrs
import trio

from conductor.bridge_api import FdTransport, accept, is_same_user
from conductor.files import lock_directory
from conductor.log import get_logger

__all__ = ["ShimListener", "ShimTransport"]

_MAX_UNAUTHENTICATED: Final = 64
"""Connections without a token yet; further ones are refused at once."""
_TOKEN_TIMEOUT: Final = 5.0
"""Seconds in which a connection must send its token."""
_MAX_TOKEN: Final = 128
_CHUNK: Final = 65536
_PREFIX: Final = "acp-mcp-"
_SOCKET: Final = "s"
_MAX_PATH: Final = 100
"""sun_path has 104 bytes on some systems."""

log = get_logger(component="mcp-bridge")


class ShimTransport(FdTransport):
    """The connection of a shim. `first`: bytes that were received after the token."""

    def __init__(self, connected: trio.SocketStream, first: bytes) -> None:
        read_fd = connected.socket.detach()
        super().__init__(read_fd, os.dup(read_fd), [first] if first else [])

    def close_writing(self) -> None:
        if self._write_fd >= 0:
            with suppress(OSError), socket.socket(fileno=os.dup(self._write_fd)) as connected:
                connected.shutdown(socket.SHUT_WR)
        super().close_writing()


@attrs.define(eq=False)
class ShimListener:
    """Accepts shims while `serve` runs; `close` removes the socket and its directory."""

    abstract: bool = False
    """Whether the socket has a name of Linux's abstract namespace in place of a path: for shims in
    a sandbox, which share the network but not the file system."""
    address: str | None = None
    _directory: str | None = attrs.field(default=None, init=False)
    _lock: int | None = attrs.field(default=None, init=False)
    _listener: trio.SocketListener | None = attrs.field(default=None, init=False)
    _tokens: dict[bytes, object] = attrs.field(factory=dict, init=False)
    _waiting: int = attrs.field(default=0, init=False)

    def open(self) -> str:
        """Create the socket on first use; returns its address. Raises `OSError`, and cleans up
        then."""
        if self.address is None:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self.address = self._bind(listener)
                listener.listen(_MAX_UNAUTHENTICATED)
                listener.setblocking(False)
            except OSError:
                listener.close()
                self.close()
                raise
            self._listener = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
        return self.address

    def issue(self, declaration: object) -> str:
        """Return a new token for this declaration."""
        token = secrets.token_urlsafe(32)
        self._tokens[_digest(token.encode())] = declaration
        return token

    def revoke(self, token: str) -> None:
        """Invalidate a token; accepted connections continue."""
        self._tokens.pop(_digest(token.encode()), None)

    async def serve(self, handler: Callable[[object, ShimTransport], Awaitable[None]]) -> None:
        """Accept connections; run `handler` for each with a valid token."""
        assert self._listener is not None
        async with trio.open_nursery() as nursery:
            while True:
                try:
                    stream = await accept(self._listener)
                except trio.ClosedResourceError:
                    nursery.cancel_scope.cancel()
                    return
                if self._waiting >= _MAX_UNAUTHENTICATED:
                    stream.socket.close()
                    log.warning("connection refused: too many without a token")
                elif not is_same_user(stream.socket):
                    stream.socket.close()
                    log.warning("connection refused: another user")
                else:
                    nursery.start_soon(self._receive, stream, handler)

    def close(self) -> None:
        self._tokens.clear()
        if self._listener is not None:
            self._listener.socket.close()
        if self._directory is not None:
            with suppress(OSError):
                os.unlink(os.path.join(self._directory, _SOCKET))
            with suppress(OSError):
                os.rmdir(self._directory)
        if self._lock is not None:
            os.close(self._lock)
        self._listener = self._directory = self._lock = self.address = None

    async def _receive(
        self,
        stream: trio.SocketStream,
        handler: Callable[[object, ShimTransport], Awaitable[None]],
    ) -> None:
        async with stream:
            self._waiting += 1
            try:
                declaration, rest = await self._read_token(stream)
            finally:
                self._waiting -= 1
            if declaration is None:
                log.warning("connection refused: bad token")
                return
            transport = ShimTransport(stream, rest)
        try:
            await handler(declaration, transport)
        except Exception as exc:  # caused by one agent or server; other shims continue
            log.error("MCP connection failed", error=f"{type(exc).__name__}: {exc}")
        finally:
            transport.close()

    async def _read_token(self, stream: trio.SocketStream) -> tuple[object | None, bytes]:
        shown = b""
        with trio.move_on_after(_TOKEN_TIMEOUT), suppress(trio.BrokenResourceError):
            while b"\n" not in shown and len(shown) <= _MAX_TOKEN:
                chunk = await stream.receive_some(_CHUNK)
                if not chunk:
                    break
                shown += chunk
        token, newline, rest = shown.partition(b"\n")
        # Looked up by digest, so that the time of the look-up reveals nothing about valid tokens.
        return (self._tokens.get(_digest(token)) if newline else None), rest

    def _bind(self, listener: socket.socket) -> str:
        """Give the socket a name; returns its address."""
        if self.abstract:
            name = f"{_PREFIX}{secrets.token_hex(16)}"
            listener.bind("\0" + name)
            return f"unix:@{name}"
        root = tempfile.gettempdir()
        if not _fits_socket_address(root):
            root = "/tmp"
        self._directory = directory = tempfile.mkdtemp(prefix=_PREFIX, dir=root)
        self._lock = lock_directory(directory, new=True)
        if self._lock is None:
            raise OSError(errno.EPERM, "it cannot be made private", directory)
        path = os.path.join(directory, _SOCKET)
        listener.bind(path)
        os.chmod(path, 0o600)
        return f"unix:{path}"


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _fits_socket_address(root: str) -> bool:
    """Whether a path there fits into a socket address, and can be written as JSON."""
    try:
        size = len(root.encode())
    except UnicodeEncodeError:  # a name that is not UTF-8
        return False
    return size + len(_PREFIX) + 8 + len(_SOCKET) + 2 <= _MAX_PATH
