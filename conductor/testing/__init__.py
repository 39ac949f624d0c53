"""Test kit for proxies, agents and chains: whole chains in memory, on a virtual clock.

    async def test_it_says_hello(acp_chain):
        async with acp_chain(MyProxy(), FakeAgent(turns=[["Hel", "lo"]])) as client:
            await client.initialize()
            session = await client.new_session("/project")
            answer = await client.prompt(session, "hi")

            assert answer == {"stopReason": "end_turn"}
            assert client.transcript.text() == "Hello"

- `open_chain` (the pytest fixture `acp_chain`): a whole chain in memory, with a `FakeClient`.
- `FakeClient`: records all messages that it receives, in order; answers requests with handlers.
- `FakeAgent`: a scripted agent, connected as a process would be, but in memory.
- `RecordedAgent`: answers as a real agent did, from a recording: one of the package
  (`Recording.names()`), or a trace file of your own.
- `RecordedSession` (the pytest fixture `recorded`): both sides of a recording, and what differs if
  they are played with a chain between them.
- `Transcript`, `Heard`: the record of received messages, with queries and assertions.
- `updates`: builders of session updates and whole turns, for both versions of the protocol.
- `conductor.testing.agent.TestAgent`: an agent that runs the commands in a prompt
  (`use: test-agent`).
- the pytest fixture `virtual_clock`: advances time when all tasks wait, so tests never sleep.

Only `conductor.testing.plugin` needs pytest; pytest finds this plugin, with the fixtures, by
itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from conductor.testing.chain import open_chain
    from conductor.testing.fakes import FakeAgent, FakeClient
    from conductor.testing.recorded_session import RecordedAgent, RecordedSession
    from conductor.testing.recording import Recording
    from conductor.testing.transcript import Heard, Transcript

__all__ = [
    "FakeAgent",
    "FakeClient",
    "Heard",
    "RecordedAgent",
    "RecordedSession",
    "Recording",
    "Transcript",
    "open_chain",
]

_HOMES: Final = {
    "FakeAgent": "fakes",
    "FakeClient": "fakes",
    "Heard": "transcript",
    "RecordedAgent": "recorded_session",
    "RecordedSession": "recorded_session",
    "Recording": "recording",
    "Transcript": "transcript",
    "open_chain": "chain",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first access: pytest loads this package in every run, for its plugin,
    and the test agent, a program of its own, does not need the fakes."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
