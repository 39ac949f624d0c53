"""Turns and requests that the conductor ends in a component's place, on a virtual clock."""

from __future__ import annotations

import json

import attrs
import pytest
import trio
from routing.test_link import Bench

from conductor.chainfile.model import ComponentSpec
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.log import get_logger
from conductor.supervision.turn_enforcement import TurnEnforcement

PROMPT, UPDATE, CANCEL = "session/prompt", "session/update", "session/cancel"
CANCELLED = ("answer", PROMPT, b'{"stopReason":"cancelled"}', None)


@attrs.define(eq=False)
class Part:
    """A component of the chain: its name is all that is asked of it."""

    name: str


@attrs.define(eq=False)
class Host:
    """The chain around the component, which blocks what is cancelled unless a test says else."""

    blocking: object = None
    notices: list = attrs.field(factory=list)

    def send_notice(self, session, title, detail=None, severity="info"):
        self.notices.append((session, title, severity))

    def blocking_component(self, component, cancelled):
        return self.blocking, True


class Enforced:
    def __init__(self, role="agent", *, version=1, **keys):
        self.bench, self.kills, self.host = Bench(role), [], Host()
        self.part = Part("notes")
        self.host.blocking = self.part
        self.turns = TurnEnforcement(
            self.part,
            ComponentSpec(name="notes", **{"cancel_timeout": 10.0, **keys}),
            self.bench.link,
            get_logger(component="notes"),
            lambda: version == 2,
            self.kills.append,
        )
        self.turns.host = self.host

    async def start(self, nursery):
        nursery.start_soon(self.turns.cancel_monitor.run)
        if self.turns.stall_monitor is not None:
            nursery.start_soon(self.turns.stall_monitor.run)
        await trio.testing.wait_all_tasks_blocked()

    def ask(self, method=PROMPT):
        call = InFlightRequest(method, self.bench.before)
        self.bench.link.plain.request(call, method, b'{"sessionId":"s","prompt":[]}')
        return call

    def cancel(self):
        self.bench.link.plain.notify(CANCEL, b'{"sessionId":"s"}')

    def state(self, name):
        update = {"sessionUpdate": "state_update", "state": name}
        self.bench.feed({"method": UPDATE, "params": {"sessionId": "s", "update": update}})

    def sent(self):
        """Methods of what was sent to the component."""
        return [message["method"] for message in self.bench.written()]

    def states(self):
        """States and reasons that the client was told."""
        told = [json.loads(event[2]) for event in self.bench.before.events if event[1] == UPDATE]
        return [(each["update"]["state"], each["update"].get("stopReason")) for each in told]


@pytest.fixture
def enforced(nursery):
    async def start(*arguments, **keys):
        made = Enforced(*arguments, **keys)
        await made.start(nursery)
        return made

    return start


async def test_a_cancelled_turn_is_answered_after_its_time_and_the_user_is_told(
    enforced, autojump_clock
):
    on = await enforced()
    on.ask()
    on.cancel()

    await trio.sleep(9.9)
    assert on.bench.before.events == []
    await trio.sleep(0.2)
    assert on.bench.before.events == [CANCELLED]
    title = "notes did not end the cancelled turn within 10 s"
    assert on.host.notices == [("s", title, "error")]
    assert on.kills == []


async def test_the_chain_file_may_have_the_component_killed(enforced, autojump_clock):
    on = await enforced(on_cancel_timeout="restart")
    on.ask()
    on.cancel()
    await trio.sleep(11)

    assert on.bench.before.events == [CANCELLED]
    assert on.kills == ["did not end the cancelled turn within 10 s (cancel_timeout)"]


async def test_a_turn_that_another_component_blocks_is_left_to_that_one(enforced, autojump_clock):
    on = await enforced()
    on.host.blocking = None
    on.ask()
    on.cancel()
    await trio.sleep(11)

    assert on.bench.before.events == on.host.notices == []


async def test_a_cancelled_request_is_answered_in_its_place(enforced, autojump_clock):
    on = await enforced()
    call = on.ask("session/set_mode")
    call.cancel()
    await trio.sleep(11)

    [(kind, method, _, error)] = on.bench.before.events
    assert (kind, method) == ("answer", "session/set_mode")
    assert json.loads(error)["code"] == -32800


async def test_a_cancelled_prompt_request_becomes_session_cancel_in_version_1(
    enforced, autojump_clock
):
    on = await enforced()
    on.ask().cancel()
    await trio.sleep(11)

    assert on.sent() == [PROMPT, "$/cancel_request", CANCEL]
    assert on.bench.before.events == []
    await trio.sleep(10)
    assert on.bench.before.events == [CANCELLED]


async def test_in_version_2_the_session_is_reported_idle(enforced, autojump_clock):
    on = await enforced(version=2)
    on.ask()
    on.bench.feed({"id": 1, "result": {}})
    on.state("running")
    on.cancel()
    await trio.sleep(11)

    assert on.states() == [("running", None), ("idle", "cancelled")]
    await trio.sleep(30)
    assert len(on.host.notices) == 1


async def test_in_version_2_a_cancellation_without_a_turn_is_no_failure(enforced, autojump_clock):
    on = await enforced(version=2)
    on.ask()
    on.bench.feed({"id": 1, "result": {}})
    on.state("running")
    on.state("idle")
    on.cancel()
    await trio.sleep(30)
    on.ask()
    on.bench.feed({"id": 2, "result": {}})
    on.state("running")
    on.cancel()
    await trio.sleep(9)
    on.state("idle")
    await trio.sleep(30)

    assert on.host.notices == []
    assert on.states() == [(name, None) for name in ("running", "idle", "running", "idle")]


async def test_a_request_that_takes_too_long_is_refused_and_its_turn_is_cancelled(
    enforced, autojump_clock
):
    on = await enforced(request_timeout={PROMPT: 5.0})
    on.ask()
    await trio.sleep(6)

    [(_, method, result, error)] = on.bench.before.events
    assert (method, result) == (PROMPT, None)
    assert "notes did not answer session/prompt within 5 s (request_timeout)" in error.decode()
    assert on.sent() == [PROMPT, "$/cancel_request", CANCEL]


async def test_a_silent_turn_is_reported_then_cancelled_then_ends_with_the_component(
    enforced, autojump_clock
):
    on = await enforced(stall_timeout=5.0, on_stall="restart", cancel_timeout=0.5)
    on.ask()
    await trio.sleep(60)

    assert on.sent()[:2] == [PROMPT, CANCEL]
    assert on.kills[0].endswith("(stall_timeout)")
    assert not any("did not end" in title for _, title, _ in on.host.notices)


async def test_a_silent_turn_is_only_reported_if_the_chain_file_says_so(enforced, autojump_clock):
    on = await enforced(stall_timeout=5.0, on_stall="report")
    on.ask()
    await trio.sleep(6)

    [(session, title, severity)] = on.host.notices
    assert (session, severity) == ("s", "info")
    assert title.startswith("notes has been silent for 5")
    assert on.sent() == [PROMPT]
