"""Start a chain, open a session and start its MCP servers, all together and for a limited time;
findings about what came of it.

If a plugin blocks the event loop, the limit cannot end the trial: a thread reports instead, and
ends the process."""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, NoReturn

import attrs
import trio

from conductor.background_tasks import background_tasks
from conductor.chain.start_failure import remedies
from conductor.chainfile.model import ChainFile
from conductor.cli.doctor.finding import Finding, Severity
from conductor.cli.doctor.mcp_servers import AddedServer, ServerStart, added_servers, gather_server
from conductor.cli.login_help import is_authentication_required, next_steps, offered_methods
from conductor.cli.terminal_text import printable
from conductor.cli.trial import Trial
from conductor.errors import RequestError
from conductor.plugins.plugin_code import blocking_line
from conductor.proxy.import_guard import import_in_thread
from conductor.routing.component import Component
from conductor.transport.process_tree import descendants, kill_new_descendants

__all__ = ["LIMIT", "blocked_finding", "gather_starts", "reported_if_blocked", "start_findings"]

LIMIT: Final = 12.0
"""Seconds that a user waits for all of it."""
_GRACE: Final = 0.5
"""Seconds between the end of the time and that of the programs that run then."""
_TELL_EVERY: Final = 3.0
_SLOW: Final = 2.0


async def gather_starts(trial: Trial, report: Callable[[Finding], NoReturn]) -> list[ServerStart]:
    """Start the chain and open a session in the working directory; at the same time start the
    servers of its `mcp_servers`, for at most `start_timeout` of the chain's `mcp`. Stop all.

    `report` ends the process, with one finding more; it is called in a thread if a plugin blocks
    the event loop beyond the limit.
    """
    with reported_if_blocked(trial.limit, report):
        return await _gather_starts(trial)


async def _gather_starts(trial: Trial) -> list[ServerStart]:
    file, limit = trial.file, trial.limit
    servers = added_servers(file)
    if servers:
        await import_in_thread("mcp")
    pending = _Pending(limit)
    results: dict[int, ServerStart] = {}
    known = descendants(os.getpid())

    async def try_server(index: int, server: AddedServer) -> None:
        with pending.waiting(f"MCP server {server.name}"):
            results[index] = await gather_server(server, min(file.mcp.start_timeout, limit))

    async with background_tasks() as background, trial.running() as running:
        background.start_soon(_kill_after, limit + _GRACE, known)
        async with trio.open_nursery() as nursery:
            if sys.stderr.isatty():
                background.start_soon(pending.tell)
            for index, server in enumerate(servers):
                nursery.start_soon(try_server, index, server)
            with pending.waiting("the chain and a session"), trio.move_on_after(limit) as scope:
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


async def _kill_after(seconds: float, known: Collection[int]) -> None:
    """End all programs but these: closing the connection to one that hangs waits for its end."""
    while True:
        await trio.sleep(seconds)
        kill_new_descendants(known)
        seconds = _GRACE


def _unanswered(components: Sequence[Component]) -> list[str]:
    """The names of those that have not answered `initialize`."""
    found = {each.name: getattr(each, "initialization", None) for each in components}
    return [
        name
        for name, each in found.items()
        # One without a deadline waits for another component.
        if each is not None and not each.done and each.deadline != float("inf")
    ]


@attrs.define(eq=False)
class _Pending:
    """Names of the operations in progress; each may take `limit` seconds."""

    limit: float
    names: list[str] = attrs.field(factory=list)

    @contextmanager
    def waiting(self, name: str) -> Iterator[None]:
        self.names.append(name)
        try:
            yield
        finally:
            self.names.remove(name)

    async def tell(self) -> None:
        """Say on stderr why there is no output yet, now and every few seconds."""
        begin = trio.current_time()
        while True:
            await trio.lowlevel.checkpoint()  # the first time: what begins has its name here
            if self.names:
                spent = trio.current_time() - begin
                text = f"waiting for {', '.join(self.names)}: {spent:.0f} of {self.limit:g} s"
                print(printable(text), file=sys.stderr, flush=True)
            await trio.sleep(_TELL_EVERY)


_PATIENCE: Final = 1.0
"""Seconds in which a loop that is not blocked replies."""


@contextmanager
def reported_if_blocked(seconds: float, report: Callable[[Finding], NoReturn]) -> Iterator[None]:
    """Call `report`, in a thread, if the loop of this thread is blocked `seconds` after the begin
    of the block, or later on before its end. `report` ends the process."""
    token, loop_thread = trio.lowlevel.current_trio_token(), threading.get_ident()
    ended, reporting = threading.Event(), threading.Lock()

    def watch() -> None:
        wait = seconds
        while not ended.wait(wait):
            replied = threading.Event()
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(replied.set)
            if not replied.wait(_PATIENCE):
                with reporting:
                    if not ended.is_set():
                        report(blocked_finding(sys._current_frames().get(loop_thread)))
            wait = _PATIENCE

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        with reporting:  # a report that has begun ends the process
            ended.set()


def blocked_finding(frame: FrameType | None) -> Finding:
    """The finding about a blocked loop, by its innermost frame."""
    place, _ = blocking_line(frame)
    message = f"the event loop, and so the whole chain, is blocked at {place}"
    help = "let a plugin wait with `await trio.sleep(…)` and trio's functions, compute in "
    help += "`await trio.to_thread.run_sync(…)`, and do nothing long while it is imported; "
    help += "`isolate: true` gives it a process of its own"
    return Finding("error", "start", message, help)
