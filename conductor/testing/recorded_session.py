"""`RecordedAgent` plays the agent's part of a recorded conversation; `RecordedSession` plays both
sides, with a proxy between them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import attrs
import msgspec

from conductor.jsonrpc.messages import CANCEL
from conductor.peer import MessageHandler
from conductor.testing.fakes import FakeClient, FakeComponent
from conductor.testing.player import Player, unwrapped
from conductor.testing.recording import Recording
from conductor.testing.replay_values import ReplayValues
from conductor.testing.transcript import Heard, Transcript
from conductor.tracing.comparison import Difference, compare
from conductor.tracing.conversation import End, at_end
from conductor.tracing.json_diff import json_diff, short_json
from conductor.tracing.links import Message
from conductor.tracing.records import Direction, RequestRecord, ResponseRecord

__all__ = ["RecordedAgent", "RecordedSession", "differences"]

_ENDS: Final[Sequence[End]] = ("client", "agent")


def _recording(given: Recording | str | os.PathLike[str]) -> Recording:
    return given if isinstance(given, Recording) else Recording.load(given)


@attrs.define(eq=False)
class RecordedAgent(FakeComponent):
    """An agent that answers as in a recording: the name of one of the package, a path of a trace
    file, or a `Recording`.

        async with acp_chain(MyProxy(), RecordedAgent("qwen-code")) as client:

    Each request gets the recorded answer to an equal one, else to the next one of its method, with
    all that the agent sent because of it; so the text of a prompt does not matter. The agent waits
    for the client where it did so in the recording: for the answers to its own requests, and for a
    `session/cancel`. It does not depend on the answers: a permission that is denied is used as in
    the recording. A request that the recording does not have gets -32601. The working directory of
    the first session replaces that of the recording.
    """

    recording: Recording = attrs.field(converter=_recording)
    handlers: dict[str, MessageHandler] = attrs.field(factory=dict, kw_only=True)
    name: str = attrs.field(default="recorded-agent", kw_only=True)
    role: Literal["proxy", "agent"] = attrs.field(default="agent", init=False)

    async def _run_peer(self) -> None:
        async with self.endpoint.open():
            Player(self.recording, "agent", self.endpoint, self.transcript).play_agent()
            await self.endpoint.ended.wait()
            self.endpoint.connection.flush()


@attrs.define(eq=False)
class RecordedSession:
    """The client and the agent of a recording.

        async def test_my_proxy_changes_nothing(acp_chain, recorded):
            session = recorded("session.jsonl")
            async with acp_chain(MyProxy(), session.agent, bridged=False) as client:
                await session.play(client)

            assert session.differences() == []

    `agent` is the recorded agent, `play` makes the client do what the recorded client did. Both
    wait for what the recorded session waited for.
    """

    client_recording: Recording
    """The messages at the client's end of the recorded chain."""
    agent_recording: Recording
    """The messages at the agent's end; equal for a recording without proxies."""
    agent: RecordedAgent = attrs.field(init=False)
    timeout: float = attrs.field(default=10.0, kw_only=True)
    """Seconds to wait for a message of the chain."""
    timeouts: list[str] = attrs.field(factory=list, init=False)
    """What `play` waited for and did not come, as lines of text."""
    _client: FakeClient | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.agent = RecordedAgent(self.agent_recording)

    @classmethod
    def load(cls, name: str | os.PathLike[str], *, chain: str | None = None) -> RecordedSession:
        """Read a recording, as `Recording.load`, with both ends of its chain."""
        client, agent = (Recording.load(name, end=end, chain=chain) for end in _ENDS)
        return cls(client, agent.received_by(client))

    async def play(self, client: FakeClient) -> None:
        """Send what the recorded client sent, and wait for what it waited for.

        The client's own handlers are not used meanwhile. Raises no errors of the chain: they are
        in `client.transcript` and among the `differences`.
        """
        self._client = client
        recording, patience = self.client_recording, self.timeout
        player = Player(recording, "client", client, client.transcript, patience)
        await player.play_client()
        self.timeouts += player.timeouts

    def differences(self, *, ignore: Sequence[str] = ()) -> list[str]:
        """Differences between the received and the recorded messages, as lines of text.

        Ids and times are not compared, nor members named in `ignore`. Empty if nothing differs.
        Call it after the chain has ended, when all messages have arrived.
        """
        lines = list(self.timeouts)
        if self._client is not None:
            received = self._client.transcript
            lines += differences(self.client_recording, "client", received, ignore)
        return [*lines, *differences(self.agent_recording, "agent", self.agent.transcript, ignore)]


def differences(
    recording: Recording, end: End, transcript: Transcript, ignore: Sequence[str]
) -> Iterator[str]:
    """The differences in the messages that one end of a recording received, as lines of text."""
    toward: Direction = "client" if end == "client" else "agent"
    places = at_end(end, toward)
    recorded = [each for each in recording.messages if each.toward == toward]
    live = [
        unwrapped(places, _plain(each), n)
        for n, each in enumerate(transcript, 1)
        if each.kind != "malformed" and each.method != CANCEL  # left out of conversations
    ]
    comparison = compare(_with_outer_methods(recording, recorded), live, ignore)
    for difference in comparison.differences:
        yield from _lines(difference)


def _plain(heard: Heard) -> Heard:
    """What was heard, with plain numbers."""
    plain = ReplayValues().recorded
    return attrs.evolve(
        heard, params=plain(heard.params), result=plain(heard.result), error=plain(heard.error)
    )


def _with_outer_methods(recording: Recording, received: Sequence[Message]) -> list[Message]:
    """A transcript has no inner method of answers to MCP requests."""
    mcp = {
        each.n
        for each in recording.messages
        if isinstance(each, RequestRecord) and each.protocol == "mcp"
    }
    return [
        msgspec.structs.replace(each, method="mcp/message")
        if isinstance(each, ResponseRecord) and each.request in mcp
        else each
        for each in received
    ]


def _lines(difference: Difference) -> Iterator[str]:
    old, new = difference.old, difference.new
    what = f"{difference.lane}: "
    if old is None and new is not None:
        yield f"{what}+ {new.method} {short_json(difference.new_payload)}"
    elif old is not None and new is None:
        yield f"{what}- #{old.n} {old.method} {short_json(difference.old_payload)}"
    elif old is not None:
        changes = json_diff(difference.old_payload, difference.new_payload)
        yield from (f"{what}#{old.n} {old.method} {each}" for each in changes)
