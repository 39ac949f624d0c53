"""In-process host of an MCP server object of the official SDK.

The SDK runs a server on a pair of streams. Here both streams end in this process: incoming messages
are put into the first, and the second calls back as soon as the server sends a message, so that
nothing is serialized in between and the order is kept. One `HostedMcpServer` is one MCP connection.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import trio

from conductor.json_values import decode_loosely
from conductor.jsonrpc.messages import INTERNAL_ERROR, REQUEST_CANCELLED, encode_error
from conductor.proxy.import_guard import import_in_thread
from conductor.proxy.peers import ResponseCallback

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectSendStream
    from mcp.server import Server
    from mcp.server.mcpserver import MCPServer
    from mcp.shared.message import SessionMessage

__all__ = ["HostedMcpServer", "HostedServerClient"]


class HostedServerClient(Protocol):
    """The client of a hosted server: receives its requests and notifications."""

    def request(
        self, method: str, params: dict[str, Any] | None, answered: ResponseCallback
    ) -> Callable[[], None]:
        """Send a request of the server to the client; returns a function that cancels it."""

    async def notify(
        self, method: str, params: dict[str, Any] | None, about: int | str | None
    ) -> None:
        """Send a notification of the server. `about` is the id of the related request, if any."""


@attrs.define(eq=False, repr=False)
class HostedMcpServer:
    """One MCP connection to the server that `make` returns; it lives as long as `run` runs."""

    make: Callable[[], Server[Any] | MCPServer]
    client: HostedServerClient
    _reason: str = attrs.field(default="", init=False)
    """Why it has ended; empty before."""
    _incoming: MemoryObjectSendStream[SessionMessage | Exception] | None = attrs.field(
        default=None, init=False
    )
    _queued: list[dict[str, Any]] = attrs.field(factory=list, init=False)
    """Messages that came before the server runs."""
    _ids: itertools.count[int] = attrs.field(factory=lambda: itertools.count(1), init=False)
    _requests: dict[int | str, ResponseCallback] = attrs.field(factory=dict, init=False)
    _server_requests: dict[int | str, Callable[[], None]] = attrs.field(factory=dict, init=False)

    async def run(self) -> None:
        """Serve until `close`. Requests that are open at the end are answered with an error."""
        try:
            await import_in_thread("mcp.server.mcpserver")
            import anyio
            from mcp.server.mcpserver import MCPServer
            from mcp.shared.message import SessionMessage

            server: Any = self.make()
            if isinstance(server, MCPServer):
                # The only public way to the low-level server that runs on given streams; 0.3 ms.
                server.streamable_http_app()
                server = server.session_manager.app
        except Exception as exc:
            self.close(f"The MCP server cannot run: {exc}")
            raise
        sending, receiving = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
        self._incoming = sending
        for message in self._queued:
            sending.send_nowait(_session_message(message))
        self._queued.clear()
        try:
            if self._reason:
                sending.close()
            with sending:
                options = server.create_initialization_options()
                await server.run(receiving, _ServerOutput(self), options)
        finally:
            self.close()

    def close(self, reason: str = "The MCP server ended") -> None:
        """Close the connection: answer open requests with an error, cancel those of the server."""
        self._reason = self._reason or reason
        if self._incoming is not None:
            self._incoming.close()
        for answered in list(self._requests.values()):
            answered(None, encode_error(INTERNAL_ERROR, self._reason))
        self._requests.clear()
        for withdraw in list(self._server_requests.values()):
            withdraw()
        self._server_requests.clear()

    # -- toward the server -------------------------------------------------------------------------

    def request(
        self,
        method: str,
        params: dict[str, Any] | None,
        answered: ResponseCallback,
        id: str | None = None,
    ) -> Callable[[], None]:
        """Send a request to the server; returns a function that cancels it."""
        key: int | str = next(self._ids) if id is None else id
        if self._reason or key in self._requests:
            reason = self._reason or "The MCP server cannot take this request"
            answered(None, encode_error(INTERNAL_ERROR, reason))
            return lambda: None
        self._requests[key] = answered
        self._put(id=key, method=method, params=params)

        def cancel() -> None:
            # The SDK's server does not answer a cancelled request.
            if self._requests.pop(key, None) is not None:
                self.notify("notifications/cancelled", {"requestId": key})
                answered(None, encode_error(REQUEST_CANCELLED, "Request cancelled"))

        return cancel

    def notify(self, method: str, params: dict[str, Any] | None) -> None:
        self._put(method=method, params=params)

    def _put(self, **message: Any) -> None:
        if self._incoming is None:
            self._queued.append(message)
        elif not self._reason:
            self._incoming.send_nowait(_session_message(message))

    # -- from the server ---------------------------------------------------------------------------

    async def _on_server_message(self, item: SessionMessage) -> None:
        message: Any = item.message
        method = getattr(message, "method", None)
        if method is None:
            answered = self._requests.pop(message.id, None)
            if answered is not None:
                answered(*_outcome(message))
        elif hasattr(message, "id"):
            self._on_server_request(message.id, method, message.params)
        elif method == "notifications/cancelled":
            withdraw = self._server_requests.pop((message.params or {}).get("requestId", ""), None)
            if withdraw is not None:
                withdraw()
        else:
            about = getattr(item.metadata, "related_request_id", None)
            await self.client.notify(method, message.params, about)

    def _on_server_request(self, id: int | str, method: str, params: dict[str, Any] | None) -> None:
        def answered(result: bytes | None, error: bytes | None) -> None:
            self._server_requests.pop(id, None)
            if result is not None:
                self._put(id=id, result=decode_loosely(result))
            else:
                self._put(id=id, error=decode_loosely(error or b"{}"))

        withdraw = self.client.request(method, params, answered)
        self._server_requests[id] = withdraw


@attrs.define(eq=False, repr=False)
class _ServerOutput:
    """The stream to which the server writes its messages."""

    _server: HostedMcpServer

    async def send(self, item: SessionMessage, /) -> None:
        await self._server._on_server_message(item)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> _ServerOutput:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


def _session_message(message: dict[str, Any]) -> SessionMessage:
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    return SessionMessage(
        jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **message}, by_name=False)
    )


def _outcome(message: Any) -> tuple[bytes | None, bytes | None]:
    error = getattr(message, "error", None)
    if error is not None:
        return None, error.model_dump_json(by_alias=True, exclude_none=True).encode()
    return json.dumps(message.result, separators=(",", ":")).encode(), None
