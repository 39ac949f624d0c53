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

from conductor.chain.build import build_components
from conductor.chain.components import ChainSpec
from conductor.chain.stdio_server import exit_now
from conductor.chainfile.model import ChainFile
from conductor.cli.terminal_text import Style, is_coloured, printable, styled
from conductor.cli.trace.diff import comparison_lines
from conductor.cli.trial import attached_chain
from conductor.client.embedding import AttachedClient, attach, attach_file
from conductor.errors import StartError
from conductor.peer import JsonRpcPeer
from conductor.routing.component import Component
from conductor.secrets.masking import mask
from conductor.testing.fakes import FakeClient
from conductor.testing.player import Player
from conductor.testing.recorded_session import RecordedSession, differences
from conductor.testing.recording import Recording
from conductor.testing.transcript import Transcript
from conductor.tracing.comparison import compare
from conductor.tracing.conversation import ConversationError, End, conversation
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

    ignore: Sequence[str] = ()
    limit: int = 100
    timeout: float = math.inf
    trace: TraceWriter | None = None
    """Gets the messages of the replay."""


def play_agent(recording: Recording, settings: ReplaySettings) -> NoReturn:
    """Serve the recorded agent on stdio, until the client leaves."""
    transcript = Transcript()

    async def serve(peer: JsonRpcPeer) -> None:
        async with peer.open():
            Player(recording, "agent", peer, transcript).play_agent()
            await peer.ended.wait()
            peer.connection.flush()

    with claim_stdio() as transport:
        try:
            trio.run(serve, JsonRpcPeer(transport))
        except* KeyboardInterrupt:
            pass
    found = list(differences(recording, "agent", transcript, settings.ignore))
    for line in found:
        print(printable(f"trace replay: {line}"), file=sys.stderr, flush=True)
    exit_now(1 if found else 0)


def play_client(recording: Recording, chain: ChainFile, settings: ReplaySettings) -> NoReturn:
    """Play the client of a chain, and compare what it got with the recording."""

    def open_chain(
        recorder: TraceRecorder,
    ) -> AbstractAsyncContextManager[AttachedClient[FakeClient]]:
        return attach_file(FakeClient, chain, recorder=recorder)

    _replay(RecordedSession(recording, recording), ("client",), chain, open_chain, settings)


def play_through(session: RecordedSession, chain: ChainFile, settings: ReplaySettings) -> NoReturn:
    """Play both ends of a chain, and compare what they got with the recording."""

    def make() -> Sequence[Component]:
        proxies = build_components(chain.proxies, mode="proxy", limits=chain.limits)
        return [*proxies, session.agent]

    def open_chain(
        recorder: TraceRecorder,
    ) -> AbstractAsyncContextManager[AttachedClient[FakeClient]]:
        spec = ChainSpec(make, limits=chain.limits, stop_timeout=chain.stop_timeout)
        return attach(FakeClient, spec, recorder=recorder)

    session.agent.name = "agent"
    _replay(session, ("client", "agent"), chain, open_chain, settings)


def _replay(
    session: RecordedSession,
    ends: Sequence[End],
    chain: ChainFile,
    open_chain: Callable[[TraceRecorder], AbstractAsyncContextManager[AttachedClient[FakeClient]]],
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
    session.timeout = settings.timeout
    replay = _Replay(session, chain.stop_timeout)

    def leave() -> NoReturn:
        kill_descendants()
        trace.close()
        if replay.signals:
            exit_now(128 + replay.signals[0])
        os.dup2(stdout, 1)
        found = _compare(session, ends, tuple(read_records(lines)), settings)
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
    """A replayed session."""

    session: RecordedSession
    max_blocked: float
    signals: list[int] = attrs.field(factory=list)
    started: bool = False
    """Whether the chain started."""
    given_up: bool = False
    """Whether a plugin did not end."""

    async def run(
        self,
        chain: AbstractAsyncContextManager[AttachedClient[FakeClient]],
        give_up: Callable[[], NoReturn],
    ) -> None:
        """Play the client; `give_up` ends the process although a plugin still runs."""
        running = attached_chain(chain, self.signals, give_up, max_blocked=self.max_blocked)
        async with running as attached:
            await self.session.play(attached.client)
            self.started = attached.chain.initialized.is_set()
        ending = attached.ending
        if ending is not None and ending.error is not None:
            print(f"the chain ended: {ending.error}", file=sys.stderr)
        is_start = ending is not None and isinstance(ending.error, StartError)
        self.started = not is_start and (ending is None or ending.reason != "never started")


def _compare(
    session: RecordedSession,
    ends: Sequence[End],
    replayed: Sequence[Record],
    settings: ReplaySettings,
) -> bool:
    """Print what differs at these ends of the chain; whether anything does."""
    old: list[Record] = []
    new: list[Record] = []
    for end in ends:
        recording = session.client_recording if end == "client" else session.agent_recording
        old += recording.messages
        new += _messages(replayed, end)
    comparison = compare(_masked(old), new, settings.ignore)
    lines: list[tuple[str, Style]] = [(each, "warning") for each in session.timeouts]
    for text, style in [*lines, *comparison_lines(comparison, settings.limit)]:
        shown = printable(text)
        print(styled(shown, style) if is_coloured() else shown)
    return bool(comparison.differences or session.timeouts)


def _masked(records: Sequence[Record]) -> Sequence[Record]:
    """A recording as it would be in a trace: secrets of the replay are masked, too."""
    data = b"".join(_encoded(each) + b"\n" for each in records)
    return tuple(read_records(mask(data, are_lines=True).splitlines(keepends=True)))


def _encoded(record: Record) -> bytes:
    try:
        return msgspec.json.encode(record)
    except (UnicodeEncodeError, OverflowError):  # a lone surrogate, a large integer
        return json.dumps(msgspec.to_builtins(record), separators=(",", ":")).encode()


def _messages(records: Sequence[Record], end: End) -> Sequence[Record]:
    """The messages of the replay at one end; none if the chain did not start."""
    try:
        return conversation(records, end)
    except ConversationError:
        return ()
