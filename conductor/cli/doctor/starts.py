"""Whether a chain starts and opens a session, as for an editor: how far it got."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import trio

from conductor.chain.start_failure import remedies
from conductor.chainfile.model import ChainFile
from conductor.cli.check.start import unasked_calls
from conductor.cli.doctor.finding import Finding, Severity
from conductor.cli.login_help import (
    AUTH_CAPABILITY,
    is_authentication_required,
    next_steps,
    offered_methods,
)
from conductor.client.acp_client import Client
from conductor.errors import ConnectionClosed, RemoteProtocolError, RequestError

__all__ = ["ChainStart", "start_findings", "try_session"]

_CAPABILITIES: Final = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "auth": AUTH_CAPABILITY,
}
_SLOW: Final = 2.0


@attrs.define
class ChainStart:
    """Result of the start of a chain."""

    file: ChainFile
    components: Sequence[str] = ()
    waited: Mapping[str, float] = attrs.field(factory=dict)
    """Seconds that the chain waited for each program or connection."""
    seconds: float | None = None
    """Time to the `initialize` result; None if the chain did not start."""
    session_seconds: float | None = None
    """Time to the answer to `session/new`."""
    answer: Mapping[str, Any] = attrs.field(factory=dict)
    """The `initialize` result."""
    start_error: RequestError | str | None = None
    session_error: RequestError | str | None = None
    is_overdue: bool = False
    """Whether there was no answer within `limit` seconds."""
    limit: float = 0.0
    waits_for: Sequence[str] = ()
    """Components or MCP servers that it waited for in the end."""


async def try_session(client: Client, start: ChainStart) -> None:
    """Start the chain of a client and open a session in the working directory."""
    begin = trio.current_time()
    with trio.move_on_after(start.limit) as scope:
        try:
            start.answer = await client.initialize(capabilities=_CAPABILITIES)
        except (RequestError, RemoteProtocolError, ConnectionClosed) as exc:
            start.start_error = exc if isinstance(exc, RequestError) else str(exc)
            return
        start.seconds = trio.current_time() - begin
        begin = trio.current_time()
        try:
            await client.new_session(os.getcwd())
        except (RequestError, RemoteProtocolError, ConnectionClosed) as exc:
            start.session_error = exc if isinstance(exc, RequestError) else str(exc)
        else:
            start.session_seconds = trio.current_time() - begin
    if scope.cancelled_caught:
        start.is_overdue = True


def start_findings(start: ChainStart) -> Iterator[Finding]:
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
    elif start.start_error is not None or start.seconds is None:
        yield from _failure("start", "the chain does not start", start.start_error, start)
    else:
        yield from _login_findings(start)
    if start.seconds is not None and (found := unasked_calls(start.file, start.answer)):
        message, helps, only_reads = found
        severity: Severity = "ok" if only_reads else "warning"
        yield Finding(severity, "permissions", message, "\n".join(helps) or None)


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


def _login_findings(start: ChainStart) -> Iterator[Finding]:
    methods = offered_methods(start.answer)
    error = start.session_error
    if isinstance(error, RequestError) and is_authentication_required(error):
        help = "\n".join(next_steps(methods, start.file))
        yield Finding("error", "login", "the agent requires a login", help)
        return
    if error is not None:
        yield from _failure("session", "session/new fails", error, start)
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


def _overdue(start: ChainStart) -> Finding:
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


def _failure(
    check: str, title: str, error: RequestError | str | None, start: ChainStart
) -> Iterator[Finding]:
    path = start.file.path
    help = f"`acp-conductor check {path}` looks for mistakes in the chain file"
    if not isinstance(error, RequestError):
        yield Finding("error", check, f"{title}: {error or 'the chain ended'}", help)
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


def _agent_text(start: ChainStart) -> str:
    if start.file.agent is None:
        return "the proxies start, before the test agent"
    answer = start.answer
    info = answer.get("agentInfo") or answer.get("info")
    name = "the agent"
    if isinstance(info, Mapping) and info.get("name"):
        name = f"{info['name']} {info.get('version', '')}".strip()
    return f"{name} speaks version {answer.get('protocolVersion')} of the protocol"
