"""The turns of a link as its observer follows them: single messages and batches."""

from __future__ import annotations

import json

import pytest
from routing.test_link import Bench

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.supervision.turn_observer import TurnObserver
from conductor.testing.updates import chunk, state

CANCEL = b'{"sessionId":"s"}'


class Watched:
    """An agent's link, and the turns of one session."""

    def __init__(self, version):
        self.bench = Bench("agent")
        self.observer = TurnObserver(self.bench.link, lambda: version == 2)
        self.call = InFlightRequest("session/prompt", self.bench.before)

    @property
    def turns(self):
        return self.observer.turns.of("s")

    def prompt(self):
        params = b'{"sessionId":"s","prompt":[]}'
        self.bench.link.plain.request(self.call, "session/prompt", params)

    def update(self, *updates):
        """In one piece and without spaces, so that several are a run."""
        params = [
            json.dumps({"sessionId": "s", "update": u}, separators=(",", ":")) for u in updates
        ]
        head = '{"jsonrpc":"2.0","method":"session/update","params":'
        lines = "".join(f"{head}{each}}}\n" for each in params)
        self.bench.link.connection.feed(lines.encode())


@pytest.fixture
async def watched(request):
    return Watched(request.param)


CHUNK = chunk("x")


@pytest.mark.parametrize("watched", [2], indirect=True)
@pytest.mark.parametrize("in_a_run", [False, True])
async def test_states_of_version_2_are_seen_alone_and_in_a_run(watched, in_a_run):
    """Also one with half an emoji, as JavaScript agents send."""
    watched.prompt()
    watched.bench.feed({"id": 1, "result": {"messageId": "m"}})
    around = [CHUNK] if in_a_run else []

    watched.update(*around, state("running", _meta={"x": "\ud83d"}), *around)
    assert watched.turns.is_running
    watched.update(*around, state("idle"), *around)
    assert not watched.turns.is_running


@pytest.mark.parametrize("watched", [2], indirect=True)
async def test_a_session_that_is_resumed_or_closed_is_told_to_its_turns(watched):
    """States before the answer to `session/resume` are history; a closed session has no turn."""
    turns = watched.turns
    resume = InFlightRequest("session/resume", watched.bench.before)
    watched.bench.link.plain.request(resume, "session/resume", CANCEL)
    watched.update(state("running"), state("idle"), state("running", background=[{}]))
    assert (turns.work, turns.resumes) == ("running", 1)
    watched.bench.feed({"id": resume.target_id, "result": {}})
    assert (turns.work, turns.resumes, len(turns.background)) == ("running", 0, 1)

    for answer in ({"error": {"code": -32603, "message": "no"}}, {"result": {}}):
        assert turns.is_underway
        close = InFlightRequest("session/close", watched.bench.before)
        watched.bench.link.plain.request(close, "session/close", CANCEL)
        watched.bench.feed({"id": close.target_id, **answer})
    assert not turns.is_open
