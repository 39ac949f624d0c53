"""What docs/reliability.md promises of turns and requests that hang (virtual clock)."""

from __future__ import annotations

import json

import attrs
import pytest
import trio
from support.peers.wire import PassProxy
from support.played_chain import (
    cancel_request,
    cancel_turn,
    played_chain,
    prompt,
    said,
    state,
    told,
    update,
)

BOTH = pytest.mark.parametrize("version", [1, 2])
RESUMES = {"sessionCapabilities": {"resume": {}}}
CANCELLED = {"stopReason": "cancelled"}
QUESTION = {"method": "session/request_permission", "params": {"sessionId": "s1"}}


@attrs.define(eq=False)
class Stuck(PassProxy):
    """Passes everything on until it is stuck: then it reads on and does nothing."""

    stuck: bool = False

    def take(self, line):
        if self.stuck:
            self.lines.append(line)
        else:
            super().take(line)


def ended(version, id=1, **more):
    """What tells the client that a cancelled turn has ended."""
    if version == 2:
        return state("idle", **CANCELLED, **more)
    return {"id": id, "result": CANCELLED}


async def wait(seconds):
    """Wait for almost so long; nothing happens before the whole time."""
    await trio.sleep(seconds - 0.1)


# -- cancel_timeout --------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("keys", [{}, {"cancel_timeout": "30s"}])
async def test_a_cancelled_turn_that_continues_is_ended_after_cancel_timeout(
    tmp_path, version, keys, autojump_clock
):
    """10 s by default, or that of the agent. The notice names the component, and comes first."""
    seconds = 30 if keys else 10
    async with played_chain(tmp_path, keys, {"name": "p"}, version=version) as chain:
        await chain.open("s1")
        await chain.prompt(1)
        chain.client.send(cancel_turn())
        await chain.expect("session/cancel")
        await wait(seconds)
        await chain.client.receive_nothing()
        await trio.sleep(0.2)

        notice, end = await chain.client.receive_all()
        session, text = told(notice)
        assert session == "s1"
        assert f"agent did not end the cancelled turn within {seconds} s" in text
        assert "the turn was ended without it" in text
        assert end == ended(version)


@BOTH
async def test_the_session_can_be_used_when_the_component_reacts_again(
    tmp_path, version, autojump_clock
):
    """Later messages of the old turn are forwarded, but for its late response (version 1)."""
    async with played_chain(tmp_path, None, {"name": "p"}, version=version) as chain:
        await chain.open("s1")
        request = await chain.prompt(1)
        chain.client.send(cancel_turn())
        await trio.sleep(10.1)
        await chain.client.receive_all()
        await chain.agent.receive_all()

        chain.agent.send(said("late"))
        chain.finish(request, reason="cancelled")

        late = [said("late")] + ([ended(2)] if version == 2 else [])
        assert await chain.client.receive_all() == late
        if version == 1:
            (event,) = chain.events("late answer dropped")
            assert event["method"] == "session/prompt"
        chain.finish(await chain.prompt(2))
        assert len(await chain.client.receive_all()) == 1


@BOTH
async def test_a_turn_that_ends_in_time_is_not_reported(tmp_path, version, autojump_clock):
    async with played_chain(tmp_path, version=version) as chain:
        await chain.open("s1")
        request = await chain.prompt(1)
        chain.client.send(cancel_turn())
        await wait(10)

        await chain.expect("session/cancel")
        chain.finish(request, reason="cancelled")
        await trio.sleep(60)

        assert await chain.client.receive_all() == [ended(version)]


@BOTH
async def test_turns_of_other_sessions_go_on(tmp_path, version, autojump_clock):
    async with played_chain(tmp_path, version=version) as chain:
        await chain.open("s1", "s2")
        await chain.prompt(1)
        other = await chain.prompt(2, "s2")
        chain.client.send(cancel_turn())
        await trio.sleep(60)
        assert len(await chain.client.receive_all()) == 2

        chain.finish(other, "s2")

        (end,) = await chain.client.receive_all()
        assert end == (
            {"id": 2, "result": {"stopReason": "end_turn"}}
            if version == 1
            else state("idle", "s2", stopReason="end_turn")
        )


@BOTH
async def test_on_cancel_timeout_restart_restarts_the_component_too(
    tmp_path, version, autojump_clock
):
    keys = {"on_cancel_timeout": "restart", "cancel_timeout": "2s"}
    async with played_chain(tmp_path, keys, {"name": "p"}, version=version) as chain:
        await chain.open("s1", able=RESUMES)
        await chain.prompt(1)
        chain.client.send(cancel_turn())
        await trio.sleep(2.1)
        await chain.restart_agent("s1", able=RESUMES)

        notice, end, restarted = await chain.client.receive_all()
        assert "it is restarted" in told(notice)[1]
        assert end == ended(version)
        assert told(restarted)[1] == "[acp-conductor] agent failed, was restarted"
        (failure,) = chain.events("component failed")
        assert "(cancel_timeout)" in failure["error"]


async def test_in_version_2_a_prompt_that_was_not_accepted_is_refused(tmp_path, autojump_clock):
    async with played_chain(tmp_path, version=2) as chain:
        await chain.open("s1")
        chain.client.send(prompt(1), cancel_turn())
        await trio.sleep(10.1)

        notice, answer = await chain.client.receive_all()
        assert "agent did not end the cancelled turn" in told(notice)[1]
        assert (answer["id"], answer["error"]["code"]) == (1, -32800)


async def test_a_prompt_after_the_cancellation_is_another_turn(tmp_path, autojump_clock):
    """Which has a time of its own when it is cancelled, too."""
    async with played_chain(tmp_path, None, {"name": "p"}) as chain:
        await chain.open("s1")
        await chain.prompt(1)
        chain.client.send(cancel_turn())
        await trio.sleep(5)
        chain.client.send(prompt(2), cancel_turn(), prompt(3))
        await trio.sleep(5.1)
        assert (await chain.client.receive_all())[1:] == [ended(1)]
        await trio.sleep(5)
        assert (await chain.client.receive_all())[1:] == [ended(1, 2)]
        await trio.sleep(60)
        assert await chain.client.receive_all() == []


async def test_in_version_2_nothing_is_ended_while_it_is_unknown_whether_the_turn_runs(
    tmp_path, autojump_clock
):
    async with played_chain(tmp_path, version=2) as chain:
        await chain.open("s1")
        await chain.prompt(1)
        chain.client.send(cancel_turn())
        chain.agent.send(state("unknown"))
        await trio.sleep(60)
        assert await chain.client.receive_all() == [state("unknown")]
        chain.agent.send(state("running"))
        await trio.sleep(10)
        assert (await chain.client.receive_all())[-1] == ended(2)


async def test_in_version_2_a_cancellation_without_a_turn_is_no_failure(tmp_path, autojump_clock):
    async with played_chain(tmp_path, version=2) as chain:
        await chain.open("s1")
        chain.finish(await chain.prompt(1))
        await chain.client.receive()
        chain.client.send(cancel_turn())
        await trio.sleep(60)

        await chain.client.receive_nothing()


# -- which component blocks ------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_proxy_that_blocks_the_turn_is_named_and_the_agent_is_cancelled_in_its_place(
    tmp_path, version, restarts, autojump_clock
):
    """The proxy before it passes the response on. The agent is not restarted."""
    keys = {"on_cancel_timeout": "restart"} if restarts else {}
    proxies = [{"name": "a"}, {"name": "b", **keys}]
    async with played_chain(tmp_path, None, *proxies, version=version, peers={"b": Stuck}) as chain:
        await chain.open("s1")
        request = await chain.prompt(1)
        chain["b"].peer.stuck = True
        chain.client.send(cancel_turn())
        await trio.sleep(0.1)
        assert not chain.agent.lines

        await trio.sleep(10.1)

        came = await chain.client.receive_all()
        assert "b did not end the cancelled turn within 10 s" in told(came[0])[1]
        assert came[1] == ended(version)
        assert cancel_turn() in await chain.agent.receive_all()
        chain.finish(request, reason="cancelled")
        assert len(chain.programs["agent"].processes) == 1
        assert len(chain.programs["b"].processes) == 1 + restarts


PLUGIN = """
import trio

from conductor.proxy import Proxy, on


class Holds(Proxy):
    @on("session/prompt")
    async def prompt(self, params: dict, forward):
        answer = await forward()
        await trio.sleep_forever()
        return answer
"""


@BOTH
async def test_a_plugin_that_holds_the_turn_is_named_and_its_handler_is_cancelled(
    tmp_path, version, autojump_clock
):
    (tmp_path / "holds.py").write_text(PLUGIN)
    plugin = {"use": "./holds.py:Holds", "name": "h"}
    async with played_chain(tmp_path, None, {"name": "p"}, plugin, version=version) as chain:
        await chain.open("s1")
        chain.client.send(prompt(1))
        request = await chain.expect("session/prompt")
        chain.agent.answer(request, {"stopReason": "end_turn"} if version == 1 else {})
        states = [state("running"), state("idle")] if version == 2 else []
        chain.agent.send(*states)
        chain.client.send(cancel_turn())
        await trio.sleep(10.1)

        notice, end, *held = await chain.client.receive_all()
        assert held == states
        assert "h did not end the cancelled turn within 10 s" in told(notice)[1]
        if version == 1:
            assert end == ended(1)
        else:
            assert (end["id"], end["error"]["code"]) == (1, -32800)
        await chain.expect("session/cancel")
        chain.client.send({"id": 2, "method": "session/set_mode", "params": {"sessionId": "s1"}})
        await chain.serve("session/set_mode")
        assert await chain.client.receive() == {"id": 2, "result": {}}


BUSY = """
import trio

from conductor.proxy import Proxy, on


class Busy(Proxy):
    @on("_hold")
    async def hold(self, params: dict):
        await trio.sleep_forever()

    @on("_hold_back")
    async def hold_back(self, params: dict):
        await trio.sleep_forever()

    @on("session/prompt")
    async def prompt(self, params: dict, forward):
        return await forward()

    @on("_later")
    async def later(self, params: dict):
        self.defer(lambda: None)
"""


@pytest.fixture
def busy(tmp_path):
    (tmp_path / "busy.py").write_text(BUSY)
    return {"use": "./busy.py:Busy", "name": "h"}


@BOTH
async def test_what_waits_behind_a_handler_is_answered_and_the_cancellation_passes_it(
    tmp_path, version, busy, autojump_clock
):
    async with played_chain(tmp_path, None, {"name": "p"}, busy, version=version) as chain:
        await chain.open("s1", "s2")
        chain.client.send({"method": "_hold"}, prompt(1), prompt(2, "s2"), cancel_turn())
        await trio.sleep(10.1)

        notice, end = await chain.client.receive_all()
        assert "h did not end the cancelled turn" in told(notice)[1]
        if version == 1:
            assert end == ended(1)
        else:
            assert (end["id"], end["error"]["code"]) == (1, -32800)
        assert await chain.agent.receive_all() == [cancel_turn()]


@BOTH
async def test_a_plugin_whose_handler_holds_back_the_end_of_the_turn_is_named(
    tmp_path, version, busy, autojump_clock
):
    """The proxy before it passes the end on, and gets no second one."""
    async with played_chain(tmp_path, None, {"name": "p"}, busy, version=version) as chain:
        await chain.open("s1")
        request = await chain.prompt(1)
        chain.agent.send({"method": "_hold_back"})
        chain.client.send(cancel_turn())
        await chain.expect("session/cancel")
        chain.finish(request, reason="cancelled")
        await trio.sleep(10.1)

        notice, end = await chain.client.receive_all()
        assert "h did not end the cancelled turn" in told(notice)[1]
        assert end == ended(version)
        await trio.sleep(60)
        assert await chain.client.receive_all() == []


async def test_a_prompt_that_waits_for_the_agent_is_left_alone(tmp_path, busy, autojump_clock):
    """Only the cancelled turn is ended, which the proxy before the plugin does not end."""
    peers = {"p": Stuck}
    async with played_chain(tmp_path, None, {"name": "p"}, busy, peers=peers) as chain:
        await chain.open("s1")
        request = await chain.prompt(1)
        chain.client.send(cancel_turn())
        await chain.expect("session/cancel")
        chain["p"].peer.stuck = True
        chain.finish(request, reason="cancelled")
        await trio.sleep(1)
        chain["p"].peer.stuck = False
        running = await chain.prompt(2)
        await trio.sleep(20)

        notice, end = await chain.client.receive_all()
        assert "p did not end the cancelled turn" in told(notice)[1]
        assert end == ended(1)
        chain.finish(running)
        assert await chain.client.receive() == {"id": 2, "result": {"stopReason": "end_turn"}}


async def test_the_proxies_before_the_blocking_component_have_time_to_pass_the_end_on(
    tmp_path, autojump_clock
):
    """One that does not is named in its turn."""
    async with played_chain(tmp_path, None, {"name": "p"}, peers={"p": Stuck}) as chain:
        await chain.open("s1")
        await chain.prompt(1)
        chain.client.send(cancel_turn())
        await trio.sleep(1)
        chain["p"].peer.stuck = True
        await trio.sleep(9.1)
        (notice,) = await chain.client.receive_all()
        assert "agent did not end the cancelled turn" in told(notice)[1]
        await wait(9.9)
        await chain.client.receive_nothing()
        await trio.sleep(0.2)
        notice, end = await chain.client.receive_all()
        assert "p did not end the cancelled turn" in told(notice)[1]
        assert end == ended(1)


# -- $/cancel_request ------------------------------------------------------------------------------


async def test_all_cancelled_requests_are_answered_at_their_own_time(tmp_path, autojump_clock):
    async with played_chain(tmp_path, None, {"name": "p"}) as chain:
        await chain.open("s1")
        for id in (1, 2, 3):
            mode = {"id": id, "method": "session/set_mode", "params": {"sessionId": "s1"}}
            chain.client.send(mode)
        chain.client.send(cancel_request(1), cancel_request(2))
        await trio.sleep(5)
        chain.client.send(cancel_request(3))
        await trio.sleep(5.1)
        answered = [each["id"] for each in await chain.client.receive_all()]
        await trio.sleep(5)
        assert (answered, [each["id"] for each in await chain.client.receive_all()]) == (
            [1, 2],
            [3],
        )


async def test_a_cancelled_request_that_is_answered_in_time_is_not_ended(tmp_path, autojump_clock):
    async with played_chain(tmp_path, None, {"name": "p"}) as chain:
        await chain.open("s1")
        chain.client.send({"id": 1, "method": "session/set_mode", "params": {"sessionId": "s1"}})
        chain.client.send(cancel_request(1))
        await chain.serve("session/set_mode")
        await trio.sleep(60)
        assert await chain.client.receive_all() == [{"id": 1, "result": {}}]
        assert (
            chain.events("request not answered after $/cancel_request: answered in its place") == []
        )


async def test_a_proxy_that_keeps_a_cancelled_request_is_named(tmp_path, autojump_clock):
    async with played_chain(tmp_path, None, {"name": "p"}, peers={"p": Stuck}) as chain:
        await chain.open("s1")
        chain["p"].peer.stuck = True
        chain.client.send({"id": 1, "method": "session/set_mode", "params": {"sessionId": "s1"}})
        chain.client.send(cancel_request(1))
        await trio.sleep(10.1)
        (answer,) = await chain.client.receive_all()
        assert answer["error"]["data"] == {"component": "p"}


async def test_a_request_that_a_plugin_has_deferred_is_answered_after_its_cancellation(
    tmp_path, busy, autojump_clock
):
    async with played_chain(tmp_path, None, busy) as chain:
        await chain.open("s1")
        chain.client.send({"id": 1, "method": "_later", "params": {}})
        await trio.sleep(1)
        chain.client.send(cancel_request(1))
        await trio.sleep(10.1)
        (answer,) = await chain.client.receive_all()
        assert answer["error"]["data"] == {"component": "h"}


DEAF = """
import trio

from conductor.proxy import Proxy, on


class Deaf(Proxy):
    @on("session/set_mode")
    async def mode(self, params: dict, forward):
        with trio.CancelScope(shield=True):
            await trio.sleep(60)
        return await forward()
"""


async def test_a_request_that_a_deaf_plugin_holds_is_answered_after_its_cancellation(
    tmp_path, autojump_clock
):
    (tmp_path / "deaf.py").write_text(DEAF)
    plugin = {"use": "./deaf.py:Deaf", "name": "h"}
    async with played_chain(tmp_path, None, plugin) as chain:
        await chain.open("s1")
        chain.client.send({"id": 1, "method": "session/set_mode", "params": {"sessionId": "s1"}})
        await chain.agent.receive_nothing()
        chain.client.send(cancel_request(1))
        await trio.sleep(10.1)

        error = {
            "code": -32800,
            "message": "session/set_mode was cancelled, and h did not answer",
            "data": {"component": "h"},
        }
        assert await chain.client.receive_all() == [{"id": 1, "error": error}]
        await trio.sleep(60)
        assert await chain.client.receive_all() == []


async def test_a_cancelled_prompt_request_becomes_session_cancel_and_has_another_timeout(
    tmp_path, autojump_clock
):
    async with played_chain(tmp_path, None, {"name": "p"}) as chain:
        await chain.open("s1")
        request = await chain.prompt(1)
        chain.client.send(cancel_request(1))
        assert await chain.agent.receive_all() == [cancel_request(request["id"])]
        await trio.sleep(10.1)
        assert await chain.agent.receive_all() == [cancel_turn()]
        await trio.sleep(9.8)
        await chain.client.receive_nothing()
        await trio.sleep(0.2)

        notice, end = await chain.client.receive_all()
        assert "agent did not end the cancelled turn" in told(notice)[1]
        assert end == ended(1)


async def test_a_chain_of_proxies_leaves_the_timeout_to_the_outer_conductor(
    tmp_path, autojump_clock
):
    """Which names the whole chain: it is one component of its own."""
    async with played_chain(tmp_path, None, {"name": "p"}, mode="proxy") as chain:
        params = {"protocolVersion": 1}
        chain.client.send({"id": 0, "method": "proxy/initialize", "params": params})
        inner = await chain.client.receive()
        chain.client.answer(inner, params)
        assert (await chain.client.receive())["id"] == 0
        chain.client.send(prompt(1))
        assert (await chain.client.receive())["method"] == "proxy/successor"
        chain.client.send(cancel_turn())
        assert (await chain.client.receive())["params"] == cancel_turn()
        await trio.sleep(100)

        assert [json.loads(line) for line in chain.client.lines if b'"error"' in line] == []
        assert b'"result"' not in b"".join(chain.client.lines)


# -- request_timeout -------------------------------------------------------------------------------


async def test_request_timeout_answers_the_request_and_cancels_it_at_the_component(
    tmp_path, autojump_clock
):
    keys = {"request_timeout": {"session/load": "30s"}}
    async with played_chain(tmp_path, keys, {"name": "p"}) as chain:
        await chain.open()
        params = {"sessionId": "x", "cwd": "/", "mcpServers": []}
        chain.client.send({"id": 1, "method": "session/load", "params": params})
        request = await chain.expect("session/load")
        await trio.sleep(30.1)

        answer = [each for each in await chain.client.receive_all() if "id" in each]
        error = {
            "code": -32603,
            "message": "agent did not answer session/load within 30 s (request_timeout)",
            "data": {"component": "agent"},
        }
        assert answer == [{"id": 1, "error": error}]
        assert await chain.agent.receive_all() == [cancel_request(request["id"])]
        chain.agent.answer(request)
        await chain.client.receive_nothing()
        assert len(chain.events("late answer dropped")) == 1


async def test_a_request_that_is_answered_in_time_is_not_timed_out(tmp_path, autojump_clock):
    async with played_chain(tmp_path, {"request_timeout": {"session/list": "5s"}}) as chain:
        await chain.open("s1")
        chain.client.send({"id": 1, "method": "session/list", "params": {}})
        await chain.serve("session/list", {"sessions": []})
        await trio.sleep(6)

        assert chain.events("request timed out") == []


async def test_request_timeout_of_a_prompt_also_cancels_the_turn(tmp_path, autojump_clock):
    keys = {"request_timeout": {"session/prompt": "30s"}}
    async with played_chain(tmp_path, keys, {"name": "p"}) as chain:
        await chain.open("s1")
        request = await chain.prompt(1)
        await trio.sleep(30.1)

        error = (await chain.client.receive())["error"]
        assert error["message"].startswith("agent did not answer session/prompt within 30 s")
        assert await chain.agent.receive_all() == [cancel_request(request["id"]), cancel_turn()]


# -- stall_timeout ---------------------------------------------------------------------------------

STALLS = {"stall_timeout": "5m", "on_stall": "restart"}


@BOTH
async def test_a_silent_turn_is_reported_then_cancelled_then_restarted(
    tmp_path, version, autojump_clock
):
    """Each step after a further period without a message."""
    async with played_chain(tmp_path, STALLS, {"name": "p"}, version=version) as chain:
        await chain.open("s1", able=RESUMES)
        request = await chain.prompt(1)
        await wait(300)
        await chain.client.receive_nothing()
        await trio.sleep(0.2)
        session, text = told(await chain.client.receive())
        assert (session, text) == ("s1", "[acp-conductor] agent has been silent for 300 s")
        assert await chain.agent.receive_all() == []
        await trio.sleep(300)
        assert await chain.agent.receive_all() == [cancel_turn()]
        await trio.sleep(300)
        open_request = [cancel_request(request["id"])] if version == 1 else []
        assert await chain.agent.receive_all() == open_request
        await trio.sleep(300)

        end = await chain.client.receive()
        error = end["error"] if version == 1 else end["params"]["update"]["error"]
        assert error["data"]["exitStatus"].endswith(" s (stall_timeout)")
        await chain.restart_agent("s1", able=RESUMES)
        assert told(await chain.client.receive())[0] == "s1"


@BOTH
async def test_on_stall_names_the_last_step(tmp_path, version, autojump_clock):
    """By default a silent turn is only reported."""
    async with played_chain(tmp_path, {"stall_timeout": "5m"}, version=version) as chain:
        await chain.open("s1")
        await chain.prompt(1)
        await trio.sleep(3600)

        assert len(await chain.client.receive_all()) == 1
        assert await chain.agent.receive_all() == []


@BOTH
async def test_any_message_of_the_session_begins_the_silence_anew(
    tmp_path, version, autojump_clock
):
    async with played_chain(tmp_path, {"stall_timeout": "5m"}, version=version) as chain:
        await chain.open("s1")
        await chain.prompt(1)
        for _ in range(3):
            await trio.sleep(299)
            chain.agent.send(*[said("on")] * 2)
            assert await chain.client.receive_all() == [said("on")] * 2
        await trio.sleep(301)

        assert told(await chain.client.receive())[1].endswith("silent for 300 s")


@BOTH
@pytest.mark.parametrize("reason", ["tool", "question", "no turn"])
async def test_silence_while_a_tool_runs_a_question_is_open_or_no_turn_runs_is_no_stall(
    tmp_path, version, reason, autojump_clock
):
    async with played_chain(tmp_path, STALLS, {"name": "p"}, version=version) as chain:
        await chain.open("s1")
        request = await chain.prompt(1)
        if reason == "tool":
            kind = "tool_call" if version == 1 else "tool_call_update"
            call = {"toolCallId": "t", "title": "make", "status": "in_progress"}
            chain.agent.send(update(kind, **call))
        elif reason == "question":
            chain.agent.send({"id": "q", **QUESTION})
        else:
            chain.finish(request)
        await chain.client.receive()
        await trio.sleep(3600)

        await chain.client.receive_nothing()
        assert await chain.agent.receive_all() == []


async def test_a_proxy_is_not_blamed_for_the_silence_of_its_successor(tmp_path, autojump_clock):
    proxy = {"name": "p", **STALLS}
    async with played_chain(tmp_path, None, proxy) as chain:
        await chain.open("s1")
        await chain.prompt(1)
        await trio.sleep(3600)

        await chain.client.receive_nothing()
        assert chain["p"].status is None


@attrs.define(eq=False)
class KeepsAnswers(PassProxy):
    """Passes no answer to a prompt on."""

    def on_response(self, message):
        if b"stopReason" not in message.get("result", b""):
            super().on_response(message)


async def test_a_proxy_that_keeps_the_answer_of_its_successor_is_silent(tmp_path, autojump_clock):
    proxy = {"name": "p", **STALLS}
    async with played_chain(tmp_path, None, proxy, peers={"p": KeepsAnswers}) as chain:
        await chain.open("s1")
        chain.finish(await chain.prompt(1))
        await trio.sleep(301)

        assert told(await chain.client.receive())[1].endswith("p has been silent for 300 s")


@attrs.define(eq=False)
class KeepsPrompts(PassProxy):
    """Never passes a prompt on."""

    def decide(self, message, *, toward_agent):
        if message["method"] != b'"session/prompt"':
            super().decide(message, toward_agent=toward_agent)


async def test_cancel_timeout_of_the_agent_is_that_of_the_whole_chain(tmp_path, autojump_clock):
    agent = {"cancel_timeout": "2s"}
    async with played_chain(tmp_path, agent, {"name": "p"}, peers={"p": KeepsPrompts}) as chain:
        await chain.open("s1")
        chain.client.send(prompt(1), cancel_turn())
        await trio.sleep(3)

        notice, answer = await chain.client.receive_all()

        assert "p did not end the cancelled turn" in told(notice)[1]
        assert answer == {"id": 1, "result": {"stopReason": "cancelled"}}
