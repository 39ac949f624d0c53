"""Provider of an HTTP or SSE MCP server, for an agent that takes only stdio servers.

The SDK's client transport runs in the conductor's process; its two streams are the provider of an
`McpConnection`, with a shim as consumer. Headers of the declaration, which may hold secrets, are
not given to the agent.

The server is not read while the agent does not read; one that has more than `max_open_requests`
open is left.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final

import attrs
import msgspec
import trio

from bridges.mcp_connection import CANCELLED, Cancel, DeclaredServer, McpConnection
from bridges.revisions import MODERN_VERSION, is_modern
from conductor.bridge_api import (
    INTERNAL_ERROR,
    InFlightRequest,
    Limits,
    Payload,
    ResponseCallback,
    encode_error,
)
from conductor.json_values import decode_loosely
from conductor.log import get_logger

__all__ = ["RemoteProvider"]

_TIMEOUT: Final = 30.0
"""Seconds for connecting and writing; reading a response has no timeout."""

_MESSAGE_OVERHEAD: Final = 2000
"""Estimated size of a queued message (the SDK's objects) without its params, in bytes."""

log = get_logger(component="mcp-bridge")


@attrs.define(eq=False)
class RemoteProvider:
    """One connection to the server of a declaration with a `url`."""

    server: DeclaredServer
    mcp_connection: McpConnection
    limits: Limits
    wait_read: Callable[[], Awaitable[None]]
    """Waits while the agent does not read."""
    waiting_bytes: int = 0
    _out: Any = attrs.field(default=None, init=False)
    _version: str | None = attrs.field(default=None, init=False)
    _ids: itertools.count[int] = attrs.field(factory=lambda: itertools.count(1), init=False)
    _open: dict[Any, tuple[str, ResponseCallback]] = attrs.field(factory=dict, init=False)
    _asking: int = attrs.field(default=0, init=False)
    """Requests of the server that are open."""
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    async def run(self) -> None:
        """Run until `close`, or until the server disconnects."""
        with self._scope:
            try:
                async with self._transport() as (incoming, outgoing):
                    sending, waiting = trio.open_memory_channel[Any](math.inf)
                    self._out = sending
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._forward, waiting, outgoing)
                        self.mcp_connection.open(self)
                        async for item in incoming:
                            self._take(item)
                            await self.wait_read()
                        nursery.cancel_scope.cancel()
            except Exception as exc:
                log.warning(
                    "MCP server connection lost",
                    server=self.server.name,
                    error=str(_first(exc)),
                )
        self._give_up()

    # -- Provider ----------------------------------------------------------------------------------

    def request(
        self, call: InFlightRequest, method: str, params: Payload | None, answered: ResponseCallback
    ) -> Cancel:
        id = next(self._ids)
        if self._out is None:
            answered(None, encode_error(INTERNAL_ERROR, "The MCP server is gone"))
            return lambda: None
        self._open[id] = method, answered
        self._send({"id": id, "method": method}, params)

        def cancel() -> None:
            if id in self._open:
                self._send({"method": CANCELLED}, b'{"requestId":%d}' % id)

        return cancel

    def notify(self, method: str, params: Payload | None) -> None:
        if method != CANCELLED:
            self._send({"method": method}, params)

    def close(self) -> None:
        self._scope.cancel()

    # -- the transport -----------------------------------------------------------------------------

    def _transport(self) -> AbstractAsyncContextManager[Any]:
        declaration = self.server.declaration
        headers = {one["name"]: one["value"] for one in declaration.get("headers") or ()}
        url = declaration["url"]
        if declaration["type"] == "sse":
            from mcp.client.sse import sse_client

            from conductor.bridge_api import bounded_client

            client = partial(bounded_client, self.limits.max_message_bytes)
            return sse_client(url, headers=headers, httpx_client_factory=client)
        return _streamable_http(url, headers, self.limits.max_message_bytes)

    def _send(self, head: dict[str, Any], params: Payload | None) -> None:
        from mcp.shared.message import ClientMessageMetadata, SessionMessage
        from mcp.types import jsonrpc_message_adapter

        message: dict[str, Any] = {"jsonrpc": "2.0", **head}
        headers: dict[str, str] = {}
        if params is not None:
            message["params"] = decode_loosely(params)
        if is_modern(params):
            headers = {"mcp-protocol-version": MODERN_VERSION, "mcp-method": head["method"]}
            name = message["params"].get("name", message["params"].get("uri"))
            if isinstance(name, str):
                headers["mcp-name"] = name
        elif self._version is not None:
            headers = {"mcp-protocol-version": self._version}
        item = SessionMessage(
            jsonrpc_message_adapter.validate_python(message),
            ClientMessageMetadata(headers=headers) if headers else None,
        )
        size = _MESSAGE_OVERHEAD + (0 if params is None else len(params))
        try:
            self._out.send_nowait((item, size))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._scope.cancel()
        else:
            self.waiting_bytes += size

    async def _forward(self, waiting: Any, outgoing: Any) -> None:
        async for item, size in waiting:
            await outgoing.send(item)
            self.waiting_bytes -= size
            self.mcp_connection.made_room()

    def _take(self, item: Any) -> None:
        if isinstance(item, Exception):
            log.warning("not a message", sender=self.server.name, error=str(item))
            return
        message = item.message.model_dump(by_alias=True, exclude_unset=True, mode="json")
        params = message.get("params")
        raw = None if params is None else msgspec.json.encode(params)
        if "method" not in message:
            method, answered = self._open.pop(message.get("id"), ("", _ignore))
            result, error = message.get("result"), message.get("error")
            encoded = None if error is not None else json.dumps(result).encode()
            if method == "initialize" and isinstance(result, dict):
                self._version = result.get("protocolVersion")
            answered(encoded, None if error is None else json.dumps(error).encode())
        elif "id" in message:
            if self._asking >= self.limits.max_open_requests:
                raise ValueError(f"it has more than {self._asking} open requests")
            self._asking += 1
            self.mcp_connection.server_request(
                message["method"], raw, lambda r, e: self._answer(message["id"], r, e)
            )
        elif message["method"] != CANCELLED:
            self.mcp_connection.server_notification(message["method"], raw)

    def _answer(self, id: Any, result: bytes | None, error: bytes | None) -> None:
        self._asking -= 1
        outcome = "result" if result is not None else "error"
        value = decode_loosely(result if result is not None else error or b"null")
        self._send({"id": id, outcome: value}, None)

    def _give_up(self) -> None:
        """Answer open requests with an error and close the shim: the agent may start another
        one."""
        self._out = None
        error = encode_error(INTERNAL_ERROR, "The MCP server cannot be reached")
        for _, answered in list(self._open.values()):
            answered(None, error)
        self._open.clear()
        self.mcp_connection.refuse(error)


def _streamable_http(
    url: str, headers: dict[str, str], max_message_bytes: int
) -> AbstractAsyncContextManager[Any]:
    from contextlib import asynccontextmanager

    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    from conductor.bridge_api import bounded_client

    @asynccontextmanager
    async def opened() -> Any:
        timeout = httpx2.Timeout(_TIMEOUT, read=None)
        async with (
            bounded_client(max_message_bytes, headers=headers, timeout=timeout) as client,
            streamable_http_client(
                url, http_client=client, max_sse_event_size=max_message_bytes
            ) as streams,
        ):
            yield streams

    return opened()


def _ignore(result: bytes | None, error: bytes | None) -> None:
    pass


def _first(exc: BaseException) -> BaseException:
    """The first exception that is not a group."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc
