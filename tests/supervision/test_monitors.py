"""Silent turns: what counts as activity of a turn, beside what `engine/test_hangs.py` plays."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from routing.test_link import Bench
from support.raw_json import dumps
from support.seen_port import SeenPort

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.routing.port import connect_ports
from conductor.supervision.monitors import StallMonitor
from conductor.supervision.turn_observer import TurnObserver


class Watched:
    """An agent's link whose turns are watched; `stalled` are the sessions, once per action."""

    def __init__(self, nursery, version=2, max_action="report"):
        self.bench = Bench("agent")
        self.turns = TurnObserver(self.bench.link, lambda: version == 2).turns
        self.stalled = []
        self.monitor = StallMonitor(
            self.turns, 10.0, max_action, {}, lambda call: None, self.stalled.append
        )
        self.monitor.insert(self.bench.link)
        nursery.start_soon(self.monitor.run)

    def prompt(self, session="s"):
        call = InFlightRequest("session/prompt", self.bench.before)
        self.bench.link.plain.request(call, "session/prompt", dumps({"sessionId": session}))

    def say(self, session="s", **update):
        update = update or {"sessionUpdate": "agent_message_chunk", "content": {"text": "x"}}
        self.bench.feed(
            {"method": "session/update", "params": {"sessionId": session, "update": update}}
        )

    async def sessions_after(self, seconds):
        """Sessions of the turns that stall within so many seconds from now."""
        self.stalled.clear()
        await trio.sleep(seconds)
        return [each.session for each in self.stalled]


@pytest.fixture
async def watched(nursery):
    made = Watched(nursery)
    await trio.testing.wait_all_tasks_blocked()
    return made


async def test_silence_is_measured_per_session(watched, autojump_clock):
    watched.prompt("a")
    watched.prompt("b")
    await trio.sleep(8)
    watched.say("b")
    watched.say("other")

    assert await watched.sessions_after(2.1) == ["a"]
    assert await watched.sessions_after(8) == ["b"]


@pytest.mark.parametrize("call", [{"sessionUpdate": "tool_call"}, {"status": "in_progress"}])
async def test_silence_while_any_tool_runs_is_no_stall(watched, call, autojump_clock):
    """A tool call that says nothing of its status is pending (schema: its default). Some agents
    send no `tool_call` for what needs a permission."""
    watched.prompt()
    for tool in "tu":
        watched.say(**{"sessionUpdate": "tool_call_update", **call}, toolCallId=tool)
    ended = {"sessionUpdate": "tool_call_update", "status": "failed"}
    watched.say(**ended, toolCallId="t")
    assert await watched.sessions_after(1000) == []

    watched.say(**ended, toolCallId="u")
    assert await watched.sessions_after(9) == []
    assert await watched.sessions_after(2) == ["s"]


@pytest.mark.parametrize("params", [{"connectionId": "c"}, {"sessionId": "child"}])
async def test_a_question_without_a_session_or_of_a_subagent_is_no_stall(
    watched, params, autojump_clock
):
    watched.prompt()
    watched.say(sessionUpdate="subagent_update", sessionId="child")
    watched.bench.feed({"id": 1, "method": "_ask", "params": params})
    assert await watched.sessions_after(1000) == []

    watched.bench.link.plain.respond(watched.bench.before.asked[0], b"{}", None)
    assert await watched.sessions_after(9) == []
    assert await watched.sessions_after(2) == ["s"]


async def test_what_a_subagent_does_counts_for_the_turn_of_its_parent(watched, autojump_clock):
    watched.prompt()
    watched.say(sessionUpdate="state_update", state="running")
    watched.say(sessionUpdate="subagent_update", sessionId="child")
    watched.say("child", sessionUpdate="subagent_update", sessionId="grandchild")
    await trio.sleep(9)
    watched.say("grandchild")
    watched.say("child", sessionUpdate="state_update", state="idle")
    assert await watched.sessions_after(9) == []
    assert await watched.sessions_after(2) == ["s"]

    call = {"sessionUpdate": "tool_call", "toolCallId": "1"}
    watched.say("child", **call)
    watched.say(**call, status="failed")
    assert await watched.sessions_after(100) == []
    watched.say("child", **call, status="failed")
    assert await watched.sessions_after(11) == ["s"]


async def test_half_an_emoji_hides_no_tool_state_or_subagent(watched, autojump_clock):
    half = {"_meta": {"\ud83d": "\ud83d"}}
    watched.prompt()
    watched.say(sessionUpdate="tool_call", toolCallId="\ud83d", **half)
    assert await watched.sessions_after(100) == []
    watched.say(sessionUpdate="tool_call_update", toolCallId="\ud83d", status="failed", **half)
    watched.say(sessionUpdate="subagent_update", sessionId="child", **half)
    for told in ({"session": "child"}, {"sessionUpdate": "state_update", "state": "running"}):
        await trio.sleep(9)
        watched.say(**told, **half)
    assert await watched.sessions_after(9) == []
    assert await watched.sessions_after(2) == ["s"]


@pytest.mark.parametrize("state", ["requires_action", "unknown"])
async def test_a_turn_that_waits_for_the_user_or_is_not_known_may_be_silent(
    watched, state, autojump_clock
):
    watched.prompt()
    watched.say(sessionUpdate="state_update", state="running")
    watched.say(sessionUpdate="state_update", state=state)
    assert await watched.sessions_after(1000) == []

    watched.say(sessionUpdate="state_update", state="running")
    assert await watched.sessions_after(11) == ["s"]


@pytest.mark.parametrize(("max_action", "climbs"), [("cancel_request", False), ("restart", True)])
async def test_after_the_last_step_only_the_end_of_the_process_may_end_the_turn(
    max_action, climbs, nursery, autojump_clock
):
    watched = Watched(nursery, max_action=max_action)
    await trio.testing.wait_all_tasks_blocked()
    watched.prompt()
    await trio.sleep(1000)

    assert watched.monitor.is_escalating("s") is climbs


async def test_what_a_component_invents_is_watched_in_bounded_memory(watched, autojump_clock):
    watched.prompt()
    long = "x" * 1025
    for n in [*range(1100), long]:
        watched.say(f"s{n}", sessionUpdate="state_update", state="running")
        watched.say(sessionUpdate="tool_call", toolCallId=f"{n}", status="in_progress")
        watched.say(sessionUpdate="subagent_update", sessionId=f"child {n}")
    # all but the prompt's session, which has tool calls
    assert len(await watched.sessions_after(11)) == 999

    for n in range(1000):
        watched.say(sessionUpdate="tool_call_update", toolCallId=f"{n}", status="completed")
    for child, counts in ((1099, True), (99, False), (long, False)):
        await trio.sleep(9)
        watched.say(f"child {child}")
        assert (await watched.sessions_after(2) == []) is counts
        watched.say()


async def test_a_run_of_updates_stays_one_for_what_comes_behind(watched, autojump_clock):
    client = SeenPort()
    connect_ports(client, watched.bench.link.plain)

    watched.bench.feed(*[{"method": "session/update", "params": {"sessionId": "s"}}] * 2)

    assert [len(each.params) for each in client.seen] == [2]
