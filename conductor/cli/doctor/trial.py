"""Try a chain for a limited time: its start, a session, and its MCP servers, all together."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, NoReturn

import attrs
import msgspec
import trio

from conductor.background_tasks import background_tasks
from conductor.chainfile.model import ChainFile, ComponentSpec
from conductor.cli.attached_chain import attached_chain
from conductor.cli.check.start import StartTimes
from conductor.cli.doctor.blocked import reported_if_blocked
from conductor.cli.doctor.finding import Finding
from conductor.cli.doctor.mcp_servers import AddedServer, ServerStart, added_servers, gather_server
from conductor.cli.doctor.starts import ChainStart, try_session
from conductor.cli.terminal_text import printable
from conductor.client.acp_client import Client
from conductor.client.embedding import attach_file
from conductor.proxy.import_guard import import_in_thread
from conductor.routing.component import Component
from conductor.transport.process_tree import descendants, kill_new_descendants

__all__ = ["Trial", "gather_trial"]

_LIMIT: Final = 12.0
"""Seconds that a user waits for all of it."""
_GRACE: Final = 0.5
"""Seconds between the end of the time and that of the programs that run then."""
_TELL_EVERY: Final = 3.0
_TEST_AGENT: Final = ComponentSpec(name="test-agent", use="test-agent")


@attrs.frozen
class Trial:
    """Results of a chain and of its MCP servers."""

    start: ChainStart
    servers: Sequence[ServerStart]


async def gather_trial(
    file: ChainFile,
    signals: list[int],
    leave: Callable[[], NoReturn],
    report: Callable[[Finding], NoReturn],
    limit: float = _LIMIT,
) -> Trial:
    """Start the chain and open a session in the working directory; at the same time start the
    servers of its `mcp_servers`, for at most `start_timeout` of the chain's `mcp`. Stop all.

    A chain of proxies is tried with the test agent. `report` ends the process, with one finding
    more; it is called in a thread if a plugin blocks the event loop beyond the limit.
    """
    with reported_if_blocked(limit, report):
        return await _gather_trial(file, signals, leave, limit)


async def _gather_trial(
    file: ChainFile, signals: list[int], leave: Callable[[], NoReturn], limit: float
) -> Trial:
    servers = added_servers(file)
    if servers:
        await import_in_thread("mcp")
    tried = file if file.agent is not None else msgspec.structs.replace(file, agent=_TEST_AGENT)
    start = ChainStart(file, [spec.name for spec in file.flat()], limit=limit)
    times, pending = StartTimes(), _Pending(limit)
    results: dict[int, ServerStart] = {}
    known = descendants(os.getpid())

    async def try_server(index: int, server: AddedServer) -> None:
        with pending.waiting(f"MCP server {server.name}"):
            results[index] = await gather_server(server, min(file.mcp.start_timeout, limit))

    async with background_tasks() as background:
        watch = partial(times.watch, background)
        attached = attach_file(Client, tried, made=watch)
        async with attached_chain(attached, signals, leave) as running:
            background.start_soon(_kill_after, limit + _GRACE, known)
            async with trio.open_nursery() as nursery:
                if sys.stderr.isatty():
                    background.start_soon(pending.tell)
                for index, server in enumerate(servers):
                    nursery.start_soon(try_server, index, server)
                with pending.waiting("the chain and a session"):
                    await try_session(running.client, start)
            if start.seconds is not None:  # without those that `when:` leaves out
                running_names = {each.name for each in running.chain.components}
                start.components = [each for each in start.components if each in running_names]
            if start.is_overdue:
                start.waits_for = _unanswered(running.chain.components)
                running.chain.kill()
        start.waited = times.spent
    found = [results[index] for index in sorted(results)]
    if start.is_overdue and start.seconds is not None:
        start.waits_for = [each.server.name for each in found if each.is_overdue]
    return Trial(start, found)


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
