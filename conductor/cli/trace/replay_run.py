"""The three ways to replay a recording: on stdio as the agent, as the client of a chain, and as
both ends of a chain. Each ends the process with its exit code."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NoReturn

import attrs
import msgspec
import trio

from conductor.background_tasks import background_tasks
from conductor.chain.build import build_components
from conductor.chain.components import ChainSpec
from conductor.chain.stdio_server import exit_now
from conductor.chainfile.model import ChainFile
from conductor.cli.attached_chain import attached_chain
from conductor.cli.terminal_text import Style, is_coloured, printable, styled
from conductor.cli.trace.diff import comparison_lines
from conductor.client.acp_client import Client
from conductor.client.embedding import AttachedClient, attach, attach_file
from conductor.errors import StartError
from conductor.peer import JsonRpcPeer
from conductor.routing.component import Component
from conductor.secrets.masking import current_masker
from conductor.testing.player import Deviation, Player
from conductor.testing.recorded_session import RecordedAgent
from conductor.testing.recording import Recording
from conductor.tracing.comparison import Comparison, compare
from conductor.tracing.conversation import (
    ConversationError,
    End,
    RecordedMessage,
    as_records,
    conversation,
)
from conductor.tracing.json_diff import json_diff
from conductor.tracing.reader import read_records
from conductor.tracing.recorder import TraceRecorder
from conductor.tracing.records import Record
from conductor.tracing.trace_writer import TraceWriter
from conductor.transport.orphan_guard import start_orphan_guard
from conductor.transport.process_tree import become_subreaper, kill_descendants
from conductor.transport.stdio import claim_stdio

__all__ = ["ReplaySettings", "play_agent", "play_client", "play_through"]


@attrs.frozen
class ReplaySettings:
    """The options of `trace replay`."""

    speed: float | None = None
    ignore: Sequence[str] = ()
    cwd: str | None = None
    limit: int = 100
    timeout: float = math.inf
    trace: TraceWriter | None = None
    """Gets the messages of the replay."""


def play_agent(recording: Recording, settings: ReplaySettings) -> NoReturn:
    """Serve the recorded agent on stdio, until the client leaves."""
    deviations: list[Deviation] = []

    def report(deviation: Deviation) -> None:
        deviations.append(deviation)
        for line in _deviation_lines(deviation):
            print(printable(line), file=sys.stderr, flush=True)

    player = Player(
        recording.messages,
        "agent",
        name=recording.name,
        speed=settings.speed,
        ignored=settings.ignore,
        on_deviation=report,
    )
    with claim_stdio() as transport:
        try:
            trio.run(_serve, JsonRpcPeer(transport), player)
        except* KeyboardInterrupt:
            pass
    exit_now(1 if deviations else 0)


async def _serve(peer: JsonRpcPeer, player: Player) -> None:
    async with background_tasks() as tasks, peer.open():
        player.start(peer, tasks)
        await peer.ended.wait()
        await peer.wait_idle()
        peer.connection.flush()


def play_client(recording: Recording, chain: ChainFile, settings: ReplaySettings) -> NoReturn:
    """Play the client of a chain, and compare what it got with the recording."""

    def open_chain(recorder: TraceRecorder) -> AbstractAsyncContextManager[AttachedClient[Client]]:
        return attach_file(Client, chain, recorder=recorder)

    _replay(recording, None, chain, open_chain, settings)


def play_through(
    client: Recording, agent: Recording, chain: ChainFile, settings: ReplaySettings
) -> NoReturn:
    """Play both ends of a chain, and compare what they got with the recording."""

    def make() -> Sequence[Component]:
        proxies = build_components(chain.proxies, mode="proxy", limits=chain.limits)
        return [*proxies, RecordedAgent(agent, name="agent", speed=settings.speed)]

    def open_chain(recorder: TraceRecorder) -> AbstractAsyncContextManager[AttachedClient[Client]]:
        spec = ChainSpec(make, limits=chain.limits, stop_timeout=chain.stop_timeout)
        return attach(Client, spec, recorder=recorder)

    _replay(client, agent, chain, open_chain, settings)


def _replay(
    client: Recording,
    agent: Recording | None,
    chain: ChainFile,
    open_chain: Callable[[TraceRecorder], AbstractAsyncContextManager[AttachedClient[Client]]],
    settings: ReplaySettings,
) -> NoReturn:
    become_subreaper()
    start_orphan_guard()
    stdout = os.dup(1)
    os.dup2(2, 1)  # output of plugins
    lines: list[bytes] = []
    trace = settings.trace
    if trace is None:
        trace = TraceWriter()
        trace.start()
    trace.listeners.append(lines.extend)
    replay = _Replay(client, settings, chain.stop_timeout)

    def leave() -> NoReturn:
        kill_descendants()
        trace.close()
        if replay.signals:
            exit_now(128 + replay.signals[0])
        os.dup2(stdout, 1)
        found = replay.compare(agent, tuple(read_records(lines)))
        exit_now(3 if not replay.started else 1 if found or replay.given_up else 0)

    def give_up() -> NoReturn:
        replay.given_up = True
        leave()

    try:
        trio.run(replay.run, open_chain(trace.recorder(chain.name)), give_up)
    except BaseException:
        kill_descendants()
        trace.close()
        raise
    leave()


@attrs.define(eq=False)
class _Replay:
    """A replayed session, with the recorded client."""

    recording: Recording
    settings: ReplaySettings
    max_blocked: float
    timeouts: list[Deviation] = attrs.field(factory=list)
    signals: list[int] = attrs.field(factory=list)
    started: bool = False
    """Whether the chain started."""
    given_up: bool = False
    """Whether a plugin did not end."""

    async def run(
        self,
        chain: AbstractAsyncContextManager[AttachedClient[Client]],
        give_up: Callable[[], NoReturn],
    ) -> None:
        """Play the client; `give_up` ends the process although a plugin still runs."""
        player = Player(
            self.recording.messages,
            "client",
            name=self.recording.name,
            speed=self.settings.speed,
            patience=self.settings.timeout,
            on_deviation=self._deviates,
        )
        if self.settings.cwd is not None and (recorded := self.recording.cwd) is not None:
            player.values.set_directory(recorded, self.settings.cwd)
        running = attached_chain(chain, self.signals, give_up, max_blocked=self.max_blocked)
        async with running as attached, background_tasks() as tasks:
            player.start(attached.client, tasks)
            await player.play()
            self.started = attached.chain.initialized.is_set()
        ending = attached.ending
        if ending is not None and ending.error is not None:
            print(f"the chain ended: {ending.error}", file=sys.stderr)
        is_start = ending is not None and isinstance(ending.error, StartError)
        self.started = not is_start and (ending is None or ending.reason != "never started")

    def _deviates(self, deviation: Deviation) -> None:
        if deviation.is_timeout:
            self.timeouts.append(deviation)

    def compare(self, agent: Recording | None, replayed: Sequence[Record]) -> bool:
        """Print what differs; whether anything does."""
        comparison = self._compare_ends(agent, replayed)
        lines: list[tuple[str, Style]] = [(each.text, "warning") for each in self.timeouts]
        for text, style in [*lines, *comparison_lines(comparison, self.settings.limit)]:
            shown = printable(text)
            print(styled(shown, style) if is_coloured() else shown)
        return bool(comparison.differences or self.timeouts)

    def _compare_ends(self, agent: Recording | None, replayed: Sequence[Record]) -> Comparison:
        cwd = self.settings.cwd
        old = as_records(self.recording.moved(cwd).messages, "client")
        new = as_records(_messages(replayed, "client"), "client")
        if agent is not None:
            old += as_records(agent.moved(cwd).messages, "agent")
            new += as_records(_messages(replayed, "agent"), "agent")
        return compare(_masked(old), new, self.settings.ignore)


def _masked(records: Sequence[Record]) -> Sequence[Record]:
    """A recording as it would be in a trace: secrets of the replay are masked, too."""
    data = b"".join(_encoded(each) + b"\n" for each in records)
    return tuple(
        read_records(current_masker().mask(data, are_lines=True).splitlines(keepends=True))
    )


def _encoded(record: Record) -> bytes:
    try:
        return msgspec.json.encode(record)
    except (UnicodeEncodeError, OverflowError):  # a lone surrogate, a large integer
        return json.dumps(msgspec.to_builtins(record), separators=(",", ":")).encode()


def _messages(records: Sequence[Record], end: End) -> Sequence[RecordedMessage]:
    """The messages of the replay at one end; none if the chain did not start."""
    try:
        return conversation(records, end)
    except ConversationError:
        return ()


def _deviation_lines(deviation: Deviation) -> list[str]:
    lines = [f"trace replay: {deviation.text}"]
    if deviation.recorded is not None:
        lines += [f"  {each}" for each in json_diff(deviation.recorded.payload, deviation.live)]
    return lines
