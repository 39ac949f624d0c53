"""A process of the agent for each session (`session_processes`)."""

from __future__ import annotations

import json
import re
import sys
from contextlib import asynccontextmanager

import pytest
import trio
from support.leftovers import descendants
from trio.testing import wait_all_tasks_blocked

from conductor.chainfile import load, model
from conductor.client.embedding import attach_file
from conductor.proxy import RequestError
from conductor.testing import FakeClient

AGENT = '''
import os

import attrs
import trio

from conductor.proxy import Agent, RequestError, on

STARTS = []


@attrs.define
class OneSession(Agent):
    """Has one session, `s`. Prompts are commands: `say`, `ask`, `wait`, `end`."""

    closes: bool = True
    _session: str = attrs.field(default="", init=False)
    _logged_in: bool = attrs.field(default=False, init=False)
    _number: int = attrs.field(default=0, init=False)
    _cancelled: trio.Event = attrs.field(factory=trio.Event, init=False)
    needs_login: bool = False

    @on("initialize")
    async def initialize(self, params: dict):
        STARTS.append(params)
        self._number = len(STARTS)
        closes = {"close": {}} if self.closes else {}
        capabilities = {"loadSession": True, "sessionCapabilities": closes}
        return {"protocolVersion": 1, "agentCapabilities": capabilities}

    @on("authenticate")
    async def authenticate(self, params: dict):
        self._logged_in = True
        return {}

    @on("session/new")
    async def new(self, params: dict):
        if self.needs_login and not self._logged_in:
            raise RequestError(-32000, "Log in first")
        if self._session:
            raise RequestError(-32603, "There is a session already")
        self._session = "s"
        await self.client.update("s", self.text("before"))
        self.start_soon(self.client.update, "s", self.text("ready"))
        return {"sessionId": "s", "_meta": {"number": self._number}}

    @on("session/load")
    async def load(self, params: dict):
        self._session = params["sessionId"]
        return {"_meta": {"number": self._number}}

    @on("session/list")
    async def list(self, params: dict):
        if self._number == 3:
            raise RequestError(-32603, "no disk")
        return {"sessions": [{"sessionId": self._session, "title": str(self._number)}]}

    @on("session/close")
    async def close(self, params: dict):
        if not self.closes:
            raise RequestError(-32601, "Method not found")
        self._session = ""
        return {}

    @on("session/cancel")
    async def cancel(self, params: dict):
        self._cancelled.set()

    @on("session/set_mode")
    async def set_mode(self, params: dict):
        return {"_meta": {"number": self._number, **params}}

    @on("session/prompt")
    async def prompt(self, params: dict):
        if params["sessionId"] != self._session:
            raise RequestError(-32602, "There is no such session")
        command = params["prompt"][0]["text"]
        self.release_lane()
        if command == "end":
            os._exit(3)
        if command == "wait":
            await self._cancelled.wait()
            return {"stopReason": "cancelled"}
        if command == "ask":
            option = {"optionId": "yes", "name": "Yes", "kind": "allow_once"}
            asked = {"sessionId": self._session, "options": [option]}
            call = {"toolCallId": "1", "title": "Go"}
            answer = await self.client.request(
                "session/request_permission", {**asked, "toolCall": call}
            )
            await self.say(str(answer["outcome"]["optionId"]))
        for number in range(20):
            await self.say(f"{self._number}:{number} ")
        return {"stopReason": "end_turn"}

    async def say(self, text):
        await self.client.update(self._session, self.text(text))

    def text(self, text):
        content = {"type": "text", "text": text}
        return {"sessionUpdate": "agent_message_chunk", "content": content}
'''
NEW = {"cwd": "/", "mcpServers": []}


@pytest.fixture
def opened(tmp_path):
    """Run a chain with the agent, and processes for sessions unless there are none."""

    @asynccontextmanager
    async def run(processes=4, *, isolate=False, agent=()):
        (tmp_path / "one.py").write_text(AGENT)
        file = {"version": 1, "agent": {"use": "./one.py:OneSession", "with": dict(agent)}}
        file["agent"] |= {"isolate": isolate}
        if processes:
            file["agent"] |= {"session_processes": processes}
        path = tmp_path / "chain.yaml"
        path.write_text(json.dumps(file))
        async with attach_file(FakeClient, load(str(path))) as attached:
            yield attached.client

    return run


async def new(client):
    """Open a session; returns its id and the number of the agent that it is in."""
    result = await client.request("session/new", NEW)
    return result["sessionId"], result["_meta"]["number"]


def said(client, session):
    updates = client.transcript.updates(session)
    return "".join(each["content"]["text"] for each in updates)


async def test_sessions_of_all_processes_are_listed_on_the_first_page(opened):
    async with opened() as client:
        await client.initialize()
        (first, _), (second, _) = [await new(client) for _ in range(2)]
        pages = [{}, {"cwd": "/"}, {"cwd": "/elsewhere"}, {"cursor": "1"}]
        listed = [(await client.request("session/list", page))["sessions"] for page in pages]

    own, others = [{"sessionId": first, "title": "1"}], [{"sessionId": second, "cwd": "/"}]
    assert listed == [own + others, own + others, own, own]


async def test_without_it_the_agent_refuses_the_second_session(opened):
    async with opened(0) as client:
        await client.initialize()
        await new(client)
        with pytest.raises(RequestError, match="There is a session already"):
            await new(client)


async def test_each_session_has_an_agent_of_its_own(opened):
    async with opened() as client:
        await client.initialize()
        (first, _), (second, _), (third, _) = [await new(client) for _ in range(3)]
        for session in (first, second, third, second):
            await client.prompt(session, "say")
        texts = [said(client, each) for each in (first, second, third)]

    assert first == "s"
    assert len({first, second, third}) == 3
    assert [re.findall(r"(\d):0 ", text) for text in texts] == [["1"], ["2", "2"], ["3"]]
    assert [text.count("before") for text in texts] == [text.count("ready") for text in texts]
    assert [text.count("before") for text in texts] == [1, 1, 1]
    turn = "".join(f"2:{number} " for number in range(20))
    assert texts[1].endswith(turn * 2)


async def test_what_follows_an_answer_comes_after_it(opened):
    async with opened() as client:
        await client.initialize()
        await new(client)
        session, _ = await new(client)
        await client.transcript.wait(
            lambda heard: heard.session == session and "ready" in str(heard.params)
        )
        heard = list(client.transcript)

    labels = [each.label for each in heard]
    second = len(labels) - 1 - labels[::-1].index("answer to session/new")
    assert next(index for index, each in enumerate(heard) if each.session == session) > second


async def test_questions_and_cancellation_reach_the_right_agent(opened):
    async with opened() as client:
        await client.initialize()
        (first, _), (second, _) = await new(client), await new(client)
        await client.prompt(second, "ask")
        (asked,) = client.transcript.of("session/request_permission", "request")
        client.start_soon(client.prompt, first, "wait")
        client.notify("session/cancel", {"sessionId": second})
        result = await client.prompt(second, "wait")
        client.notify("session/cancel", {"sessionId": first})
        mode = {"sessionId": second, "modeId": "m"}
        answer = await client.request("session/set_mode", mode)

    assert asked.params["sessionId"] == second
    assert "yes" in said(client, second)
    assert result == {"stopReason": "cancelled"}
    assert answer["_meta"] == {"number": 2, **mode}


@pytest.mark.parametrize("closes", [True, False])
async def test_a_closed_session_makes_room(opened, closes):
    async with opened(1, agent={"closes": closes}) as client:
        result = await client.initialize()
        assert result["agentCapabilities"]["sessionCapabilities"] == {"close": {}}
        (_, _), (second, _) = await new(client), await new(client)
        with pytest.raises(RequestError, match="1 processes of the agent run beside the first"):
            await new(client)
        await client.request("session/close", {"sessionId": second})
        _, number = await new(client)
        assert number == 3
        with pytest.raises(RequestError):
            await client.prompt(second, "say")


async def test_an_agent_that_cannot_close_its_session_gets_no_other_one(opened):
    async with opened(agent={"closes": False}) as client:
        await client.initialize()
        first, _ = await new(client)
        await client.request("session/close", {"sessionId": first})
        with pytest.raises(RequestError, match="There is no such session"):
            await client.request("session/close", {"sessionId": first})
        _, number = await new(client)

    assert number == 2


async def test_after_the_first_session_the_agent_of_the_chain_is_free(opened):
    async with opened() as client:
        await client.initialize()
        first, _ = await new(client)
        await client.request("session/close", {"sessionId": first})
        _, number = await new(client)

    assert number == 1


async def test_a_session_is_loaded_where_it_is_open(opened):
    async with opened() as client:
        await client.initialize()
        await new(client)
        second, _ = await new(client)
        again = await client.request("session/load", {**NEW, "sessionId": second})
        other = await client.request("session/load", {**NEW, "sessionId": "kept"})
        await client.prompt("kept", "say")

    assert (again["_meta"]["number"], other["_meta"]["number"]) == (2, 3)
    assert "3:0" in said(client, "kept")


async def test_a_login_is_repeated_in_further_processes(opened):
    async with opened(agent={"needs_login": True}) as client:
        await client.initialize()
        with pytest.raises(RequestError, match="Log in first"):
            await new(client)
        await client.request("authenticate", {"methodId": "key"})
        assert [(await new(client))[1] for _ in range(2)] == [1, 2]


@pytest.mark.slow
async def test_a_program_that_fails_is_started_again_for_its_session(opened):
    async with opened(isolate=True) as client:
        await client.initialize()
        first, _ = await new(client)
        second, _ = await new(client)
        # A process that exits loses what it has not written yet.
        await client.transcript.wait(lambda heard: "ready" in str(heard.params), count=2)
        with pytest.raises(RequestError, match="exited with status 3"):
            await client.prompt(second, "end")
        for session in (second, first):
            assert (await client.prompt(session, "say"))["stopReason"] == "end_turn"
        assert "1:0" in said(client, second)
        assert [said(client, each).count("before") for each in (first, second)] == [1, 1]


async def test_a_prompt_that_runs_when_its_session_is_closed_is_answered(opened, virtual_clock):
    answers = []

    async def prompt(client, session):
        answers.append(await client.prompt(session, "wait"))

    async with opened() as client:
        await client.initialize()
        await new(client)
        second, _ = await new(client)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(prompt, client, second)
            await wait_all_tasks_blocked()
            await client.request("session/close", {"sessionId": second})

    assert answers == [{"stopReason": "cancelled"}]


async def test_an_agent_that_is_known_to_share_servers_shares_a_process_when_there_is_no_more(
    tmp_path, monkeypatch
):
    """An editor that never closes a session is not refused the tenth one."""
    monkeypatch.setattr(model, "_PROCESSES", 1)
    program = tmp_path / "opencode"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m conductor.testing.agent\n')
    program.chmod(0o755)
    (tmp_path / "chain.yaml").write_text(f"version: 1\nagent: {{run: ['{program}']}}\n")
    before = descendants()
    async with attach_file(FakeClient, load(str(tmp_path / "chain.yaml"))) as attached:
        client = attached.client
        await client.initialize()
        sessions = [await client.new_session() for _ in range(4)]
        for session in sessions:
            await client.prompt(session, f"say to {session}")
        programs = [each.cmdline() for each in descendants() - before]

    texts = [client.transcript.text(each) for each in sessions]
    assert texts == [f"to {each}" for each in sessions]
    assert sum("conductor.testing.agent" in each for each in programs) == 2
