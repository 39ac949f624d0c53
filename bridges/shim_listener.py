"""Listener for shims, with authentication.

A Unix socket in a private directory, created for the first declaration. A peer must run as the same
user and send, in its first line, the valid token of a declaration; any other connection is closed
without a byte. A token belongs to one declaration of one session set-up and is revoked when the
declaration is released. It may be used several times, because an agent may start several processes
for one declaration. (On a system without Unix sockets: loopback TCP, without the user check.)
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import select
import socket
import struct
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

import attrs
import trio

from conductor.bridge_api import WaitingTransport
from conductor.errors import ConnectionClosed
from conductor.files import lock_directory
from conductor.log import get_logger

__all__ = ["ShimListener", "SocketDirectory", "SocketTransport"]

_MAX_UNAUTHENTICATED: Final = 64
"""Connections without a token yet; further ones are refused at once."""
_TOKEN_TIMEOUT: Final = 5.0
"""Seconds in which a connection must send its token."""
_MAX_TOKEN: Final = 128
_CHUNK: Final = 65536
_PREFIX: Final = "acp-mcp-"
_SOCKET: Final = "s"
_MAX_ATTEMPTS: Final = 8
_MAX_PATH: Final = 100
"""sun_path has 104 bytes on some systems."""

log = get_logger(component="mcp-bridge")
T = TypeVar("T")


class SocketTransport(WaitingTransport):
    """A connected stream socket as a `conductor.transport.base.Transport`."""

    def __init__(self, connected: socket.socket, first: bytes = b"") -> None:
        super().__init__()
        self._socket = connected
        self._first = first
        """Bytes that were received after the token."""
        self._writing = True

    async def receive(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            await trio.lowlevel.checkpoint()
            return first
        while self._socket.fileno() >= 0:
            try:
                await trio.lowlevel.wait_readable(self._socket)
                return self._socket.recv(_CHUNK)
            except BlockingIOError:
                continue
            except (OSError, trio.ClosedResourceError):
                return b""
        return b""

    def write_now(self, pieces: Sequence[bytes | memoryview]) -> int:
        try:
            return self._socket.sendmsg(pieces[:64])
        except BlockingIOError:
            return 0
        except OSError as exc:
            raise ConnectionClosed(str(exc)) from exc

    async def wait_writable(self) -> None:
        try:
            if self._socket.fileno() >= 0:
                await trio.lowlevel.wait_writable(self._socket)
            else:
                await trio.lowlevel.checkpoint()
        except (OSError, trio.ClosedResourceError):
            return

    def peer_closed_write(self) -> bool:
        """Whether the peer has shut down writing, even if bytes are left to read."""
        if self._socket.fileno() < 0 or not hasattr(select, "poll"):
            return False
        poller = select.poll()
        poller.register(self._socket, getattr(select, "POLLRDHUP", 0))
        return bool(poller.poll(0))

    def peer_closed_read(self) -> bool:
        return not self._writing

    def close_writing(self) -> None:
        if self._writing and self._socket.fileno() >= 0:
            self._writing = False
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


@attrs.define(eq=False)
class ShimListener:
    """Accepts shims while `serve` runs; `close` removes the socket and its directory."""

    abstract: bool = False
    """Whether the socket has a name of Linux's abstract namespace in place of a path: for shims in
    a sandbox, which share the network but not the file system."""
    address: str | None = None
    _directory: SocketDirectory | None = attrs.field(default=None, init=False)
    _listener: socket.socket | None = attrs.field(default=None, init=False)
    _tokens: dict[bytes, object] = attrs.field(factory=dict, init=False)
    _waiting: int = attrs.field(default=0, init=False)

    def open(self) -> str:
        """Create the socket on first use; returns its address. Raises `OSError`, and cleans up
        then."""
        if self.address is None:
            if hasattr(socket, "AF_UNIX"):
                try:
                    self._listener, self.address = self._unix()
                except OSError:
                    self.close()
                    raise
            else:
                self._listener = socket.create_server(
                    ("127.0.0.1", 0), backlog=_MAX_UNAUTHENTICATED
                )
                self.address = f"tcp:127.0.0.1:{self._listener.getsockname()[1]}"
            self._listener.setblocking(False)
        return self.address

    def issue(self, declaration: object) -> str:
        """Return a new token for this declaration."""
        token = secrets.token_urlsafe(32)
        self._tokens[_digest(token.encode())] = declaration
        return token

    def revoke(self, token: str) -> None:
        """Invalidate a token; accepted connections continue."""
        self._tokens.pop(_digest(token.encode()), None)

    async def serve(self, handler: Callable[[object, SocketTransport], Awaitable[None]]) -> None:
        """Accept connections; run `handler` for each with a valid token."""
        listener = self._listener
        assert listener is not None
        async with trio.open_nursery() as nursery:
            while True:
                try:
                    await trio.lowlevel.wait_readable(listener)
                    stream, _ = listener.accept()
                except BlockingIOError:
                    continue
                except (trio.ClosedResourceError, OSError) as exc:
                    if listener.fileno() < 0:
                        nursery.cancel_scope.cancel()
                        return
                    log.warning("accept failed", error=str(exc))
                    await trio.sleep(0.05)  # out of descriptors: retry
                    continue
                stream.setblocking(False)
                if self._waiting >= _MAX_UNAUTHENTICATED:
                    stream.close()
                    log.warning("connection refused: too many without a token")
                    continue
                if not _is_same_user(stream):
                    stream.close()
                    log.warning("connection refused: another user")
                    continue
                nursery.start_soon(self._receive, stream, handler)

    def close(self) -> None:
        self._tokens.clear()
        if self._listener is not None:
            trio.lowlevel.notify_closing(self._listener)
            self._listener.close()
        if self._directory is not None:
            self._directory.remove()
        self._listener = self._directory = self.address = None

    async def _receive(
        self,
        stream: socket.socket,
        handler: Callable[[object, SocketTransport], Awaitable[None]],
    ) -> None:
        with stream:
            self._waiting += 1
            try:
                declaration, rest = await self._read_token(stream)
            finally:
                self._waiting -= 1
            if declaration is None:
                log.warning("connection refused: bad token")
                return
            try:
                await handler(declaration, SocketTransport(stream, rest))
            except Exception as exc:  # caused by one agent or server; other shims continue
                log.error("MCP connection failed", error=f"{type(exc).__name__}: {exc}")

    async def _read_token(self, stream: socket.socket) -> tuple[object | None, bytes]:
        shown = b""
        with trio.move_on_after(_TOKEN_TIMEOUT):
            while b"\n" not in shown:
                if len(shown) > _MAX_TOKEN:
                    return None, b""
                try:
                    await trio.lowlevel.wait_readable(stream)
                    chunk = stream.recv(_CHUNK)
                except BlockingIOError:
                    continue
                except OSError:
                    return None, b""
                if not chunk:
                    return None, b""
                shown += chunk
        token, newline, rest = shown.partition(b"\n")
        # Looked up by digest, so that the time of the look-up reveals nothing about valid tokens.
        return (self._tokens.get(_digest(token)) if newline else None), rest

    def _unix(self) -> tuple[socket.socket, str]:
        if self.abstract:
            name = f"acp-mcp-{secrets.token_hex(16)}"
            self._listener = listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind("\0" + name)
            listener.listen(_MAX_UNAUTHENTICATED)
            return listener, f"unix:@{name}"
        self._directory = directory = SocketDirectory.make()
        self._listener = listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(directory.path)
        os.chmod(directory.path, 0o600)
        listener.listen(_MAX_UNAUTHENTICATED)
        return listener, f"unix:{directory.path}"


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _is_same_user(stream: socket.socket) -> bool:
    """Whether the peer process runs as the same user."""
    try:
        return _has_same_uid(stream)
    except OSError:
        return False  # it is gone already


def _has_same_uid(stream: socket.socket) -> bool:
    if sys.platform == "linux":
        raw = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        uid: int = struct.unpack("3i", raw)[1]
        return uid == os.geteuid()
    if sys.platform == "darwin":
        # LOCAL_PEERCRED: struct xucred {u_int version; uid_t uid; …}
        raw = stream.getsockopt(0, 0x001, 76)
        return bool(struct.unpack_from("2I", raw)[1] == os.geteuid())
    return True


@attrs.define(eq=False)
class SocketDirectory:
    """Private directory (mode 0700) for the shims' socket, removed when the conductor ends.

    That of a killed conductor is removed by the next one that creates a directory. The owner holds
    a lock on it, which the kernel releases when the process ends; so no process ids are compared,
    and a directory in use is never removed. Only a socket called `s` is removed, and then the
    directory if it is empty. The mode is set on the open directory, independent of the umask and of
    the parent directory (setgid), and is then verified.
    """

    directory: str
    _lock: int

    @classmethod
    def make(cls) -> SocketDirectory:
        """Create a directory, and remove those of killed conductors. Raises `OSError`."""
        root = tempfile.gettempdir()
        if not _fits_socket_address(root):
            root = "/tmp"
        _remove_stale(root)
        for _ in range(_MAX_ATTEMPTS):
            directory = tempfile.mkdtemp(prefix=_PREFIX, dir=root)
            try:
                lock = lock_directory(directory, new=True)
            except FileNotFoundError:
                continue  # another conductor removed it as stale
            except OSError:
                with suppress(OSError):
                    os.rmdir(directory)
                raise
            if lock is not None and os.path.isdir(directory):
                return cls(directory, lock)
            if lock is not None:
                os.close(lock)
            with suppress(OSError):
                os.rmdir(directory)
        raise OSError(
            errno.EAGAIN, f"no directory for the MCP bridge could be made and locked in {root}"
        )

    @property
    def path(self) -> str:
        """Path of the socket."""
        return os.path.join(self.directory, _SOCKET)

    def remove(self) -> None:
        _remove(self.directory, self._lock)


def _fits_socket_address(root: str) -> bool:
    """Whether a path there fits into a socket address, and can be written as JSON."""
    try:
        size = len(root.encode())
    except UnicodeEncodeError:  # a name that is not UTF-8
        return False
    return size + len(_PREFIX) + 8 + len(_SOCKET) + 2 <= _MAX_PATH


def _remove_stale(root: str) -> None:
    with suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                lock = _try_lock(entry.path)
                if lock is not None:
                    _remove(entry.path, lock)


def _try_lock(directory: str) -> int | None:
    """Return the lock of a stale directory of this user; `None` if it is in use."""
    try:
        return lock_directory(directory)
    except OSError:
        return None


def _remove(directory: str, lock: int) -> None:
    with suppress(OSError):
        os.unlink(_SOCKET, dir_fd=lock)
    with suppress(OSError):
        os.rmdir(directory)
    os.close(lock)
