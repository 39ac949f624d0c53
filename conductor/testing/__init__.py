"""What tests of proxies, agents and chains need: for our own tests and for other people's.

    async def test_it_says_hello(chain):
        async with chain(MyProxy(), FakeAgent(turns=[["Hel", "lo"]])) as client:
            await client.initialize()
            session = await client.new_session("/project")
            answer = await client.prompt(session, "hi")

            assert answer == {"stopReason": "end_turn"}
            assert client.transcript.text() == "Hello"

- `open_chain` (the pytest fixture `chain`): a whole chain in memory, with a `FakeClient`.
- `FakeClient`: keeps everything that it got, in order, answers by handlers, sends raw lines.
- `FakeAgent`, `FakeProxy`: scripted components at the other end of a link, as a process would be.
- `Transcript`, `Heard`: what was heard, and questions about it.
- `conductor.testing.agent.TestAgent`: an agent that does what the prompt says (`use: test-agent`).
- the pytest fixture `virtual_clock`: time passes when everyone waits, so no test ever does.

Nothing here depends on pytest; the fixtures come with the plugin `conductor.testing.plugin`, which
pytest finds by itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from conductor.testing.chain import open_chain
    from conductor.testing.fake_proxy import FakeProxy
    from conductor.testing.fakes import FakeAgent, FakeClient
    from conductor.testing.transcript import Heard, Transcript

__all__ = ["FakeAgent", "FakeClient", "FakeProxy", "Heard", "Transcript", "open_chain"]

_HOMES: Final = {
    "FakeAgent": "fakes",
    "FakeClient": "fakes",
    "FakeProxy": "fake_proxy",
    "Heard": "transcript",
    "Transcript": "transcript",
    "open_chain": "chain",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: pytest loads this package in every run, for its plugin,
    and the agent, which is a program of its own, has no use for the fakes."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
