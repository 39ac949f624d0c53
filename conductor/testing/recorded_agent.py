"""`RecordedAgent`: plays the agent's part of a recorded conversation."""

from __future__ import annotations

import os
from typing import Literal

import attrs

from conductor.background_tasks import background_tasks
from conductor.peer import MessageHandler
from conductor.testing.fakes import FakeComponent
from conductor.testing.player import Deviation, Player
from conductor.testing.recording import Recording

__all__ = ["RecordedAgent"]


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

    recording: Recording | str | os.PathLike[str]
    handlers: dict[str, MessageHandler] = attrs.field(factory=dict, kw_only=True)
    name: str = attrs.field(default="recorded-agent", kw_only=True)
    role: Literal["proxy", "agent"] = attrs.field(default="agent", init=False)
    speed: float | None = attrs.field(default=None, kw_only=True)
    """Messages are sent at the recorded pace, this many times faster; `None`: at once."""
    deviations: list[Deviation] = attrs.field(factory=list, init=False)
    """Differences between the client's behaviour and the recording."""
    player: Player = attrs.field(init=False)
    """The player of the last start."""
    _recording: Recording = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        given = self.recording
        self._recording = given if isinstance(given, Recording) else Recording.load(given)
        self.player = self._new_player()

    async def _run_peer(self) -> None:
        async with background_tasks() as tasks:
            self.player = self._new_player()
            self.player.start(self.endpoint, tasks)
            await super()._run_peer()

    def _new_player(self) -> Player:
        return Player(
            self._recording.messages,
            "agent",
            name=self._recording.name,
            speed=self.speed,
            on_deviation=self.deviations.append,
        )
