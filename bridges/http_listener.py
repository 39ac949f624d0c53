"""Listener on loopback for MCP clients over HTTP, which bounds connections without a token.

Every local user can connect to the port. A connection is unauthenticated until a request on it has
shown a valid token. There are at most 64 such connections, each is closed after 5 s, and the oldest
one when one more is accepted: a client sends its token within milliseconds, so connections that
others keep open do not displace it. Authenticated connections are neither counted nor closed.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from conductor.bridge_api import accept
from conductor.log import get_logger

if TYPE_CHECKING:
    from hypercorn.config import Config

__all__ = ["HttpListener"]

_MAX_UNAUTHENTICATED: Final = 64
"""Connections without a token yet; one more closes the oldest."""
_TOKEN_TIMEOUT: Final = 5.0
"""Seconds in which a connection must show a token."""
_BACKLOG: Final = 128

log: Final = get_logger(component="mcp-bridge")

HttpApp = Callable[[Callable[[], None], Any, Any, Any], Awaitable[None]]
"""An ASGI application; its first argument is called when the connection has shown a valid token."""


@attrs.define(eq=False)
class _HttpConnection:
    stream: trio.SocketStream
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    token_wait: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def close(self, reason: str) -> None:
        """Close the socket, which also wakes writes that hypercorn shields from cancellation."""
        log.debug("HTTP connection closed", reason=reason)
        self.stream.socket.close()
        self.scope.cancel()


@attrs.define(eq=False)
class HttpListener:
    """Accepts connections while `serve` runs."""

    app: HttpApp
    _listener: trio.SocketListener | None = attrs.field(default=None, init=False)
    _open: set[_HttpConnection] = attrs.field(factory=set, init=False)
    _unauthenticated: dict[_HttpConnection, None] = attrs.field(factory=dict, init=False)
    """Oldest first."""

    def open(self) -> int:
        """Listen; returns the port. Raises `OSError`."""
        # Imported before the first connection, which may take the last descriptor.
        from conductor.bridge_api import serve_http  # noqa: F401

        opened = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self._listener = trio.SocketListener(trio.socket.from_stdlib_socket(opened))
        port: int = opened.getsockname()[1]
        return port

    def close(self) -> None:
        """Close the port and all connections."""
        if self._listener is not None:
            self._listener.socket.close()
        for connection in self._open:
            connection.close("the bridge ends")

    async def serve(self) -> None:
        """Accept connections until cancelled."""
        from hypercorn.config import Config

        assert self._listener is not None
        config = Config()
        config.accesslog = config.errorlog = None
        config.include_server_header = False
        async with trio.open_nursery() as nursery:
            try:
                while True:
                    connection = _HttpConnection(await accept(self._listener))
                    if len(self._unauthenticated) >= _MAX_UNAUTHENTICATED:
                        self._refuse(next(iter(self._unauthenticated)), "too many without a token")
                    self._open.add(connection)
                    self._unauthenticated[connection] = None
                    nursery.start_soon(self._serve_connection, connection, config)
            finally:
                self.close()

    def _refuse(self, connection: _HttpConnection, reason: str) -> None:
        if connection in self._unauthenticated:
            del self._unauthenticated[connection]
            connection.close(reason)

    def _accept_token(self, connection: _HttpConnection) -> None:
        self._unauthenticated.pop(connection, None)
        connection.token_wait.cancel()

    async def _serve_connection(self, connection: _HttpConnection, config: Config) -> None:
        from conductor.bridge_api import is_peer_gone, serve_http

        app = partial(self.app, partial(self._accept_token, connection))
        try:
            with connection.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._wait_for_token, connection)
                    await serve_http(app, config, connection.stream)
                    nursery.cancel_scope.cancel()
        except Exception as exc:
            if not is_peer_gone(exc):
                log.error("HTTP connection failed", error=type(exc).__name__)
        finally:
            connection.stream.socket.close()
            self._open.discard(connection)
            self._unauthenticated.pop(connection, None)

    async def _wait_for_token(self, connection: _HttpConnection) -> None:
        with connection.token_wait:
            await trio.sleep(_TOKEN_TIMEOUT)
            self._refuse(connection, "no token")
