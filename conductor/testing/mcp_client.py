"""MCP client of the test agent: stdio servers, and only their tools.

It speaks revision 2025-11-25, as most agents do. A server lives as long as its session.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import trio

from conductor import __version__
from conductor.errors import ConductorError, ConnectionClosed, RequestError
from conductor.peer import JsonRpcPeer
from conductor.transport.child_process import ChildProcess, start_child
from conductor.transport.spawn import SpawnError

__all__ = ["McpServer", "McpServerFailure", "open_server"]

_REVISION: Final = "2025-11-25"
_START_TIMEOUT: Final = 30.0
_STOP_TIMEOUT: Final = 2.0


class McpServerFailure(ConductorError):
    """An MCP server cannot be used; the message gives the reason."""


@attrs.frozen
class McpServer:
    """An initialized MCP server."""

    name: str
    _endpoint: JsonRpcPeer

    async def tools(self) -> list[dict[str, Any]]:
        """Return the server's tools, all pages."""
        tools: list[dict[str, Any]] = []
        params: dict[str, Any] = {}
        while True:
            page = await self._request("tools/list", params)
            tools += page.get("tools", ())
            if not page.get("nextCursor"):
                return tools
            params = {"cursor": page["nextCursor"]}

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool; a result with `isError` means that the tool failed."""
        return await self._request("tools/call", {"name": tool, "arguments": dict(arguments)})

    async def _request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            result: dict[str, Any] = await self._endpoint.request(method, params)
        except (RequestError, ConnectionClosed) as exc:
            raise McpServerFailure(f"MCP server {self.name!r}: {method}: {exc}") from exc
        return result


@asynccontextmanager
async def open_server(declaration: Mapping[str, Any], cwd: str) -> AsyncIterator[McpServer]:
    """Start the stdio server of an ACP declaration; it is stopped after the block.

    Raises `McpServerFailure` if it cannot be started or initialized.
    """
    name = declaration.get("name", "?")
    if declaration.get("type", "stdio") != "stdio":
        raise McpServerFailure(f"MCP server {name!r}: only stdio servers are supported")
    environment = {item["name"]: item["value"] for item in declaration.get("env") or ()}
    argv = [declaration["command"], *(declaration.get("args") or ())]
    try:
        child = start_child(argv, env={**os.environ, **environment}, cwd=cwd)
    except SpawnError as exc:
        raise McpServerFailure(f"MCP server {name!r}: {exc}") from exc
    endpoint = JsonRpcPeer(
        child.transport,
        {"ping": lambda params: {}},
        cancel_method="notifications/cancelled",
    )
    try:
        async with endpoint.open():
            endpoint.start_soon(_drain, child)
            with trio.move_on_after(_START_TIMEOUT) as patience:
                await _initialize(endpoint, name)
            if patience.cancelled_caught:
                raise McpServerFailure(
                    f"MCP server {name!r} did not answer within {_START_TIMEOUT:g} s"
                )
            yield McpServer(name, endpoint)
    finally:
        with trio.CancelScope(shield=True):
            await _end(child)


async def _initialize(endpoint: JsonRpcPeer, name: str) -> None:
    params = {
        "protocolVersion": _REVISION,
        "capabilities": {},
        "clientInfo": {"name": "test-agent", "version": __version__},
    }
    try:
        await endpoint.request("initialize", params)
    except (RequestError, ConnectionClosed) as exc:
        raise McpServerFailure(f"MCP server {name!r}: initialize: {exc}") from exc
    endpoint.notify("notifications/initialized")


async def _drain(child: ChildProcess) -> None:
    while await child.read_stderr():
        pass


async def _end(child: ChildProcess) -> None:
    with trio.move_on_after(_STOP_TIMEOUT) as patience:
        await child.wait()
    if patience.cancelled_caught:
        child.signal(signal.SIGKILL)
        await child.wait()
    child.close()
