"""Start the MCP servers that the `mcp_servers` proxies of a chain add."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import attrs
import trio

from conductor.chainfile.model import ChainFile
from conductor.cli.doctor.finding import Finding
from conductor.limits import Limits

__all__ = ["AddedServer", "ServerStart", "added_servers", "gather_server", "server_findings"]

_SLOW: Final = 5.0


@attrs.frozen
class AddedServer:
    """An entry of `servers:` that adds a server."""

    name: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    url: str | None = None
    type: str = "http"
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)


@attrs.frozen
class ServerStart:
    """Result of the start of a server: duration in seconds, number of tools, error."""

    server: AddedServer
    seconds: float
    tools: int | None = None
    error: str | None = None
    is_overdue: bool = False
    """Whether the error is that it did not answer in time."""


def added_servers(file: ChainFile) -> list[AddedServer]:
    """The servers of all `mcp_servers` proxies of a chain.

    Entries with mistakes are left out: with them the chain does not start, which is a finding of
    its own.
    """
    found = []
    for spec in file.flat():
        entries = spec.options.get("servers") if spec.use == "mcp_servers" else None
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, Mapping) and (server := _added(entry)) is not None:
                found.append(server)
    return found


def _added(entry: Mapping[str, Any]) -> AddedServer | None:
    command, url = entry.get("command") or [], entry.get("url")
    env, headers = entry.get("env") or {}, entry.get("headers") or {}
    is_valid = isinstance(command, list) and isinstance(env, Mapping)
    if not (is_valid and isinstance(headers, Mapping) and (command or isinstance(url, str))):
        return None
    return AddedServer(
        name=str(entry.get("name")),
        command=tuple(map(str, command)),
        env={str(name): str(value) for name, value in env.items()},
        url=url,
        type=str(entry.get("type", "http")),
        headers={str(name): str(value) for name, value in headers.items()},
    )


async def gather_server(server: AddedServer, limit: float) -> ServerStart:
    """Connect to a server, list its tools, and end it."""
    begin = trio.current_time()
    tools = None
    error: str | None = None
    is_overdue = False
    with tempfile.TemporaryFile("w+") as stderr:
        try:
            with trio.fail_after(limit):
                tools = await _count_tools(server, stderr)
        except trio.TooSlowError:
            is_overdue = True
            error = f"it did not answer within {limit:g} s"
        except Exception as exc:  # of the SDK, of its transports and of the operating system
            error = _reason(exc)
        seconds = limit if is_overdue else trio.current_time() - begin
        if error is not None:
            stderr.seek(0)
            last = stderr.read()[-4000:].splitlines()[-3:]
            error = "\n".join([error, *last])
    return ServerStart(server, seconds, tools, error, is_overdue)


async def _count_tools(server: AddedServer, stderr: Any) -> int:
    from mcp import Client, StdioServerParameters
    from mcp.client.sse import sse_client
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client

    if server.url is None:
        program, *args = server.command
        if shutil.which(program) is None:
            raise FileNotFoundError(f"command not found: {program}")
        env = {**os.environ, **server.env}
        parameters = StdioServerParameters(command=program, args=args, env=env)
        async with Client(stdio_client(parameters, errlog=stderr)) as client:
            return len((await client.list_tools()).tools)
    from conductor.network.bounded_http import bounded_client

    headers, limit = dict(server.headers), Limits().max_message_bytes
    if server.type == "sse":
        bounded = partial(bounded_client, limit)
        async with Client(
            sse_client(server.url, headers=headers, httpx_client_factory=bounded)
        ) as client:
            return len((await client.list_tools()).tools)
    async with (
        bounded_client(limit, headers=headers) as http,
        Client(streamable_http_client(server.url, http_client=http)) as client,
    ):
        return len((await client.list_tools()).tools)


def server_findings(start: ServerStart) -> Iterator[Finding]:
    server, seconds = start.server, start.seconds
    if start.error is not None:
        message = f"MCP server {server.name} does not start: {start.error}"
        yield Finding("error", "mcp", message, _help(start), seconds)
    elif seconds > _SLOW:
        message = f"MCP server {server.name} is slow: sessions may wait for it"
        help = "install its program, instead of npx or uvx that look for it at each start"
        yield Finding("warning", "mcp", message, help if server.command else None, seconds)
    else:
        yield Finding(
            "ok", "mcp", f"MCP server {server.name} starts; tools: {start.tools}", None, seconds
        )


def _help(start: ServerStart) -> str:
    server = start.server
    if server.url is not None:
        return f"see whether {server.url} can be reached, and its `headers:`"
    if start.error is not None and start.error.startswith("command not found"):
        return "install it, or write its absolute path"
    return f"run it in a terminal: {shlex.join(server.command)}"


def _reason(exc: BaseException) -> str:
    """The first exception that is not a group."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return str(exc) or type(exc).__name__
