"""Start a chain, open a session and start its MCP servers, all together and for a limited time;
findings about what came of it."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn

import attrs
import trio

from conductor.chain.start_failure import remedies
from conductor.chainfile.model import ChainFile
from conductor.cli.doctor.finding import Finding, Severity
from conductor.cli.login_help import is_authentication_required, next_steps, offered_methods
from conductor.cli.trial import Trial
from conductor.errors import RequestError
from conductor.limits import Limits
from conductor.proxy.import_guard import import_in_thread
from conductor.routing.component import Component

__all__ = [
    "LIMIT",
    "AddedServer",
    "ServerStart",
    "added_servers",
    "gather_server",
    "gather_starts",
    "server_findings",
    "start_findings",
]

LIMIT: Final = 12.0
"""Seconds that a user waits for all of it."""
_BLOCKED: Final = "a plugin blocks the event loop, and so the whole chain: the log has its line"
_UNBLOCK: Final = (
    "let the plugin wait with `await trio.sleep(…)` and trio's functions, compute in "
    "`await trio.to_thread.run_sync(…)`, and do nothing long while it is imported; "
    "`isolate: true` gives it a process of its own"
)
_SLOW: Final = 2.0
_SLOW_SERVER: Final = 5.0


async def gather_starts(trial: Trial, report: Callable[[Finding], NoReturn]) -> list[ServerStart]:
    """Start the chain and open a session in the working directory; at the same time start the
    servers of its `mcp_servers`, for at most `start_timeout` of the chain's `mcp`. Stop all.

    `report` ends the process, with one finding more; it is called in a thread if a plugin blocks
    the event loop for as long as the limit.
    """
    file, limit = trial.file, trial.limit
    servers = added_servers(file)
    if servers:
        await import_in_thread("mcp")
    results: dict[int, ServerStart] = {}

    async def try_server(index: int, server: AddedServer) -> None:
        results[index] = await gather_server(server, min(file.mcp.start_timeout, limit))

    blocked = Finding("error", "start", _BLOCKED, _UNBLOCK)
    async with trial.running(max_blocked=limit, before_exit=lambda: report(blocked)) as running:
        async with trio.open_nursery() as nursery:
            for index, server in enumerate(servers):
                nursery.start_soon(try_server, index, server)
            with trio.move_on_after(limit) as scope:
                if await trial.start(running):
                    await trial.open_session(running)
        trial.is_overdue = scope.cancelled_caught
        if trial.is_overdue:
            trial.waits_for = _unanswered(running.chain.components)
            running.chain.kill()
    found = [results[index] for index in sorted(results)]
    if trial.is_overdue and trial.seconds is not None:
        trial.waits_for = [each.server.name for each in found if each.is_overdue]
    return found


def start_findings(start: Trial) -> Iterator[Finding]:
    """Findings about the components, the session and the login."""
    for name in start.components:
        seconds = start.waited.get(name)
        if name in start.waits_for:
            continue
        if seconds is not None and seconds > _SLOW:
            help = _faster(start.file, name)
            yield Finding("warning", "start", f"{name} is slow to start", help, seconds)
        elif start.seconds is not None:
            where = "started" if seconds is not None else "runs in the conductor's process"
            yield Finding("ok", "start", f"{name} {where}", seconds=seconds)
    if start.seconds is not None:
        yield Finding("ok", "start", _agent_text(start), seconds=start.seconds)
    if start.is_overdue:
        yield _overdue(start)
    elif start.seconds is None:
        yield from _failure("start", "the chain does not start", start)
    else:
        yield from _login_findings(start)
    if start.seconds is not None and (calls := start.unasked_calls()):
        severity: Severity = "ok" if calls.only_reads else "warning"
        yield Finding(severity, "permissions", calls.text, "\n".join(calls.helps) or None)


def _faster(file: ChainFile, name: str) -> str | None:
    """Advice about the slow start of a component."""
    spec = next((spec for spec in file.flat() if spec.name == name), None)
    if spec is None or spec.ssh is not None or (spec.run is None and spec.registry is None):
        return None
    if spec.run and os.path.basename(spec.run[0]) in {"npx", "uvx"}:
        return (
            f"{spec.run[0]} looks for a newer version at each start: `registry:` with"
            " `acp-conductor lock` starts what is installed"
        )
    return "`prewarm: true` starts programs before the editor asks"


def _login_findings(start: Trial) -> Iterator[Finding]:
    methods = offered_methods(start.answer)
    error = start.error
    if isinstance(error, RequestError) and is_authentication_required(error):
        help = "\n".join(next_steps(methods, start.file))
        yield Finding("error", "login", "the agent requires a login", help)
        return
    if error is not None:
        yield from _failure("session", "session/new fails", start)
        return
    seconds = start.session_seconds
    yield Finding("ok", "session", "a session opens in the working directory", seconds=seconds)
    if start.file.agent is None:
        return
    names = ", ".join(str(method.get("name") or method["id"]) for method in methods)
    about = f"; it offers {names}" if names else ""
    help = f"`acp-conductor prompt {shlex.quote(start.file.path)} hello` tries it: some agents ask"
    help += " for a login only then"
    yield Finding("ok", "login", f"untested: sessions open without one{about}", help)


def _overdue(start: Trial) -> Finding:
    names, limit = ", ".join(start.waits_for), f"within {start.limit:g} s"
    path = shlex.quote(start.file.path)
    if start.seconds is None:
        message = f"the chain does not start {limit}: {names or 'a component'} has not answered"
        help = "run the command in a terminal to see what it waits for; `acp-conductor check "
        help += f"--start {path}` waits as long as its `start_timeout`"
        return Finding("error", "start", message, help)
    if names:
        help = f"it may wait for MCP servers that do not answer: {names}"
    else:
        help = f"to see where it stays: `acp-conductor prompt {path} hello --trace FILE`, and "
        help += "`acp-conductor trace show FILE`"
    return Finding("error", "session", f"session/new has no answer {limit}", help)


def _failure(check: str, title: str, start: Trial) -> Iterator[Finding]:
    path, error = start.file.path, start.error
    help = f"`acp-conductor check {path}` looks for mistakes in the chain file"
    if not isinstance(error, RequestError):
        yield Finding("error", check, f"{title}: {str(error or '') or 'the chain ended'}", help)
        return
    data = error.data if isinstance(error.data, Mapping) else {}
    place = data.get("place")
    if isinstance(place, str) and place:
        help = "\n".join([f"see {place}", *remedies(error.message)])
    elif "component" not in data and "problems" not in data:
        help = "this is the answer of the agent, or of a proxy: `acp-conductor trace show` shows of"
        help += f" which, after `acp-conductor prompt {path} hello --trace FILE`"
    lines = [f"{title}: {error.message}"]
    stderr = data.get("stderr")
    lines += [str(line) for line in stderr[-5:]] if isinstance(stderr, list) else []
    yield Finding("error", check, "\n".join(lines), help)


def _agent_text(start: Trial) -> str:
    if start.file.agent is None:
        return "the proxies start, before the test agent"
    answer = start.answer
    info = answer.get("agentInfo") or answer.get("info")
    name = "the agent"
    if isinstance(info, Mapping) and info.get("name"):
        name = f"{info['name']} {info.get('version', '')}".strip()
    return f"{name} speaks version {answer.get('protocolVersion')} of the protocol"


def _unanswered(components: Sequence[Component]) -> list[str]:
    """The names of those that have not answered `initialize`."""
    found = {each.name: getattr(each, "initialization", None) for each in components}
    return [
        name
        for name, each in found.items()
        # One without a deadline waits for another component.
        if each is not None and not each.done and each.deadline != float("inf")
    ]


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
    elif seconds > _SLOW_SERVER:
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
