"""Start a chain as an editor does, open a session, and report how far it got."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn

import attrs
import msgspec
import trio

from conductor.background_tasks import background_tasks
from conductor.chain.start_failure_text import remedies
from conductor.chainfile.model import ChainFile, ComponentSpec
from conductor.cli.attached_chain import attached_chain
from conductor.cli.check.start import StartTimes
from conductor.cli.doctor.finding import Finding
from conductor.cli.login_help import (
    AUTH_CAPABILITY,
    is_authentication_required,
    next_steps,
    offered_methods,
)
from conductor.client.acp_client import Client
from conductor.client.embedding import attach_file
from conductor.errors import ConnectionClosed, RemoteProtocolError, RequestError

__all__ = ["ChainStart", "gather_start", "start_findings"]

_CAPABILITIES: Final = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "auth": AUTH_CAPABILITY,
}
_TEST_AGENT: Final = ComponentSpec(name="test-agent", use="test-agent")
_SLOW: Final = 2.0
_SESSION_TIMEOUT: Final = 60.0


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


async def gather_start(
    file: ChainFile, signals: list[int], leave: Callable[[], NoReturn]
) -> ChainStart:
    """Start the chain, open a session in the working directory, and stop it.

    A chain of proxies is tried with the test agent.
    """
    tried = file if file.agent is not None else msgspec.structs.replace(file, agent=_TEST_AGENT)
    start = ChainStart(tried, [spec.name for spec in tried.flat()])
    times = StartTimes()
    async with background_tasks() as nursery:
        watch = partial(times.watch, nursery)
        async with attached_chain(attach_file(Client, tried, made=watch), signals, leave) as chain:
            await _try(chain.client, start)
        start.waited = times.spent
    return start


async def _try(client: Client, start: ChainStart) -> None:
    begin = trio.current_time()
    try:
        start.answer = await client.initialize(capabilities=_CAPABILITIES)
    except (RequestError, RemoteProtocolError, ConnectionClosed) as exc:
        start.start_error = exc if isinstance(exc, RequestError) else str(exc)
        return
    start.seconds = trio.current_time() - begin
    begin = trio.current_time()
    try:
        with trio.fail_after(_SESSION_TIMEOUT):
            await client.new_session(os.getcwd())
    except trio.TooSlowError:
        start.session_error = f"no answer within {_SESSION_TIMEOUT:g} s"
    except (RequestError, RemoteProtocolError, ConnectionClosed) as exc:
        start.session_error = exc if isinstance(exc, RequestError) else str(exc)
    else:
        start.session_seconds = trio.current_time() - begin


def start_findings(start: ChainStart) -> Iterator[Finding]:
    """Findings about the components, the session and the login."""
    for name in start.components:
        seconds = start.waited.get(name)
        if seconds is not None and seconds > _SLOW:
            help = "a program that is installed starts faster than npx or uvx, which look for a "
            help += "newer version first: see `acp-conductor lock`"
            yield Finding("warning", "start", f"{name} is slow to start", help, seconds)
        elif start.seconds is not None:
            where = "started" if seconds is not None else "runs in the conductor's process"
            yield Finding("ok", "start", f"{name} {where}", seconds=seconds)
    if start.start_error is not None or start.seconds is None:
        yield from _failure("start", "the chain does not start", start.start_error, start)
        return
    yield Finding("ok", "start", _agent_text(start.answer), seconds=start.seconds)
    yield from _login_findings(start)


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
    names = ", ".join(str(method.get("name") or method["id"]) for method in methods)
    about = f"; it offers {names}" if names else ""
    yield Finding("ok", "login", f"the agent opens sessions without asking for a login{about}")


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


def _agent_text(answer: Mapping[str, Any]) -> str:
    info = answer.get("agentInfo") or answer.get("info")
    name = "the agent"
    if isinstance(info, Mapping) and info.get("name"):
        name = f"{info['name']} {info.get('version', '')}".strip()
    return f"{name} speaks version {answer.get('protocolVersion')} of the protocol"
