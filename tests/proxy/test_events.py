from __future__ import annotations

from typing import Any

import pytest
from support.event_samples import CALL, DONE, PLAN, opened

from conductor.errors import RequestError
from conductor.proxy import (
    Proxy,
    on_permission,
    on_prompt,
    on_session,
    on_session_end,
    on_text,
    on_tool_end,
    on_tool_start,
    on_turn_end,
    on_update,
)
from conductor.testing import FakeAgent


class Recorder(Proxy):
    """Records the events of a session."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    @on_session
    async def opened(self, session):
        self.seen.append(("session", session.opened_by, session.cwd))

    @on_session_end
    async def ended(self, session):
        self.seen.append(("session end", session.id))

    @on_prompt
    async def prompt(self, session, prompt, forward):
        self.seen.append(("prompt", prompt.text))
        return await forward()

    @on_tool_start
    async def tool_started(self, session, call):
        self.seen.append(("tool start", call.title, call.kind))

    @on_tool_end
    async def tool_ended(self, session, call):
        self.seen.append(("tool end", call.title, call.status))

    @on_turn_end
    async def turn_ended(self, session, end):
        self.seen.append(("turn end", end.stop_reason, dict(end.usage)))

    @on_update("plan")
    async def plan(self, session, update, forward):
        self.seen.append(("plan", update["entries"]))
        await forward()


async def test_events_of_a_session_come_in_order(chain):
    usage = {"totalTokens": 3}
    end = {"stopReason": "end_turn", "usage": usage}
    recorder = Recorder()
    async with chain(recorder, FakeAgent(turns=[[CALL, DONE, DONE, PLAN, end]])) as client:
        session = await opened(client)
        await client.prompt(session, "hi")
        assert client.transcript.updates() == [CALL, DONE, DONE, PLAN]

    assert recorder.seen == [
        ("session", "new", "/work"),
        ("prompt", "hi"),
        ("tool start", "Read a", "read"),
        ("tool end", "Read a", "completed"),
        ("plan", []),
        ("turn end", "end_turn", usage),
        ("session end", session),
    ]


async def test_on_text_replaces_a_piece_of_text(chain):
    class P(Proxy):
        @on_text
        async def shout(self, session, text):
            return text.upper() if text != "left" else None

    async with chain(P(), FakeAgent(turns=[["one ", "left"]])) as client:
        session = await opened(client)
        await client.prompt(session, "hi")

    assert client.transcript.text() == "ONE left"


async def test_an_exception_in_an_observing_handler_lets_the_message_pass(chain, caplog):
    class P(Proxy):
        @on_tool_start
        async def fail(self, session, call):
            raise ValueError("no")

    async with chain(P(), FakeAgent(turns=[[CALL]])) as client:
        session = await opened(client)
        await client.prompt(session, "hi")

    told, update = client.transcript.updates()
    assert "P failed in on_tool_start: ValueError: no (" in told["content"]["text"]
    assert update == CALL


RUNNING = {"sessionUpdate": "state_update", "state": "running"}
IDLE = {**RUNNING, "state": "idle", "stopReason": "end_turn", "usage": {"totalTokens": 3}}


async def test_in_version_2_the_idle_state_ends_a_turn_once(chain):
    recorder = Recorder()

    async def end(session):
        agent.update(session, IDLE)
        agent.update(session, IDLE)

    agent = FakeAgent(turns=[[RUNNING, {**CALL, "sessionUpdate": "tool_call_update"}, DONE, end]])
    async with chain(recorder, agent) as client:
        await client.initialize(version=2)
        session = (await client.request("session/new", {"cwd": "/work"}))["sessionId"]
        await client.prompt(session, "hi")
        await client.transcript.wait("session/update state_update", count=3)
        assert recorder.protocol_version == 2

    assert recorder.seen == [
        ("session", "new", "/work"),
        ("prompt", "hi"),
        ("tool start", "Read a", "read"),
        ("tool end", "Read a", "completed"),
        ("turn end", "end_turn", {"totalTokens": 3}),
        ("session end", session),
    ]


async def test_an_idle_state_repeated_with_background_work_ends_no_turn(chain):
    """Not for the client, not for events, and not for a proxy that prompts."""
    recorder, ends = Recorder(), []
    background = [{"type": "terminal", "terminalId": "t"}]

    class Prompts(Proxy):
        @on_prompt
        async def prompt(self, session, prompt, forward):
            if prompt.text == "twice":
                ends.extend([await self.agent.prompt_turn(session.id, "hi") for _ in range(2)])
            return await forward()

    async def play(session):
        if session in sessions:  # it has worked before
            agent.update(session, {**IDLE, "background": background})
        sessions.add(session)
        agent.update(session, RUNNING)
        agent.update(session, {**IDLE, "stopReason": "refusal", "background": background})

    async def accept(params):
        agent.endpoint.start_soon(play, params["sessionId"])  # after the answer is written
        return {"messageId": "p"}

    sessions: set[str] = set()
    agent = FakeAgent({"session/prompt": accept})
    async with chain(recorder, Prompts(), agent) as client:
        await client.initialize(version=2)
        session = await client.new_session("/work")
        prompts = ["hi", "hi", "twice", "hi"]
        of_client = [(await client.prompt_turn(session, each))["stopReason"] for each in prompts]

    assert of_client == ["refusal"] * 4
    assert [each.stop_reason for each in ends] == ["refusal"] * 2
    assert [each[1] for each in recorder.seen if each[0] == "turn end"] == ["refusal"] * 6


@pytest.mark.parametrize("version", [1, 2])
async def test_a_refused_prompt_and_a_closed_session_leave_no_turn(chain, version):
    running = []

    class Looks(Proxy):
        @on_prompt
        async def prompt(self, session, prompt, forward):
            running.append(session.is_running)
            return await forward()

    refused = [RequestError(-32603, "no")]
    agent = FakeAgent({"session/close": lambda params: {}}, turns=[refused, [RUNNING], []])
    async with chain(Looks(), agent) as client:
        await client.initialize(version=version)
        session = await client.new_session("/work")
        with pytest.raises(RequestError):
            await client.prompt(session, "hi")
        await client.prompt(session, "hi")
        await client.request("session/close", {"sessionId": session})
        await client.prompt(session, "hi")

    assert running == [False, False, False]


async def test_a_turn_that_is_cancelled_before_its_work_begins_ends_by_the_next_idle_state(chain):
    recorder = Recorder()

    async def cancelled(params):
        agent.update(params["sessionId"], {**IDLE, "stopReason": "cancelled"})

    agent = FakeAgent({"session/prompt": lambda params: {"messageId": "m"}})
    agent.handlers["session/cancel"] = cancelled
    async with chain(recorder, agent) as client:
        await client.initialize(version=2)
        session = await client.new_session("/work")
        for update in (RUNNING, IDLE):
            agent.update(session, update)
        await client.transcript.wait("session/update state_update", count=2)
        await client.prompt(session, "hi")
        client.notify("session/cancel", {"sessionId": session})
        await client.transcript.wait("session/update state_update", count=3)

    ends = [each[1] for each in recorder.seen if each[0] == "turn end"]
    assert ends == ["end_turn", "cancelled"]


async def test_states_that_are_replayed_end_no_turn_and_the_last_one_is_the_present(chain):
    recorder, running = Recorder(), []

    class Looks(Proxy):
        @on_prompt
        async def prompt(self, session, prompt, forward):
            running.append(session.is_running)
            return await forward()

    def resume(params):
        for update in (RUNNING, IDLE, RUNNING):
            agent.update(params["sessionId"], update)
        return {}

    agent = FakeAgent({"session/resume": resume})
    async with chain(recorder, Looks(), agent) as client:
        await client.initialize(version=2)
        await client.request("session/resume", {"sessionId": "s", "cwd": "/work"})
        assert "turn end" not in [each[0] for each in recorder.seen]
        await client.prompt_turn("s", "hi")

    assert running == [True]
    assert [each[0] for each in recorder.seen].count("turn end") == 1


async def test_the_update_that_ends_a_tool_call_still_finds_it(chain):
    seen: list[Any] = []

    class Titles(Proxy):
        @on_update("tool_call", "tool_call_update")
        async def update(self, session, update, forward):
            seen.append([each.title for each in session.tool_calls.values()])
            await forward()

    again = {**CALL, "toolCallId": "2"}
    async with chain(Titles(), FakeAgent(turns=[[CALL, DONE, again]])) as client:
        await client.prompt(await opened(client), "hi")

    assert seen == [["Read a"], ["Read a"], ["Read a"]]


@pytest.mark.parametrize("version", [1, 2])
async def test_a_call_starts_before_the_permission_that_it_needs_with_the_input_of_the_request(
    chain, version
):
    seen: list[Any] = []

    class Inputs(Proxy):
        @on_tool_start
        async def tool_started(self, session, call):
            seen.append((session.id, call.raw_input))

        @on_permission
        async def asked(self, session, asked, forward):
            seen.append("permission")
            return asked.deny()

    async def work(session):
        for id in (session, "child"):
            agent.update(id, {**CALL, "sessionUpdate": begin, "status": "pending", "rawInput": {}})
            await agent.ask(id, {"toolCallId": "1", "rawInput": {"path": "/a"}})
            agent.update(id, {**DONE, "status": "in_progress"})
            agent.update(id, DONE)

    begin = "tool_call" if version == 1 else "tool_call_update"
    agent = FakeAgent(turns=[[work]])
    async with chain(Inputs(), agent) as client:
        await client.initialize(version=version)
        session = await client.new_session("/work")
        await client.prompt_turn(session, "hi")

    started = {"path": "/a"}
    assert seen == [(session, started), "permission", ("child", started), "permission"]


@pytest.mark.parametrize("ends", [True, False])
async def test_the_end_of_a_call_has_the_input_that_only_its_permission_request_has(chain, ends):
    """qwen and fast-agent tell it there alone."""
    seen: list[Any] = []

    class Inputs(Proxy):
        @on_tool_end
        async def tool_ended(self, session, call):
            seen.append((call.title, call.status, call.raw_input))

    async def ask(session):
        await agent.ask(session, {"toolCallId": "1", "title": "rm a", "rawInput": {"path": "/a"}})

    agent = FakeAgent(turns=[[{**CALL, "rawInput": {}}, ask, *([DONE] if ends else [])]])
    async with chain(Inputs(), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "hi")

    assert seen == [("rm a", "completed" if ends else "failed", {"path": "/a"})]
