"""Answers that do not fit the protocol pass; the peer that answered is named, not the plugin."""

from __future__ import annotations

import json

import pytest
import trio

from conductor import log
from conductor.chainfile.model import ComponentSpec
from conductor.proxy import (
    Proxy,
    RequestError,
    on,
    on_permission,
    on_prompt,
    on_question,
    on_session,
    on_session_setup,
    slash,
)
from conductor.schema.v1 import ListSessionsRequest, LoadSessionRequest
from conductor.schema.v2 import ListSessionsRequest as ListSessionsRequestV2
from conductor.testing import FakeAgent

NONSENSE = [None, [], "x", 5, {"sessions": "x", "outcome": 5}]


@pytest.fixture
def logged(capsys):
    """Returns the log lines of warnings and errors so far."""
    log.configure("warning", as_json=True)
    return lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]


async def refusal(request, *args):
    """The error that a request is answered with."""
    with pytest.raises(RequestError) as caught:
        await request(*args)
    return caught.value


class Plain(Proxy):
    @on("session/list")
    async def pass_on(self, params, forward):
        return await forward()


class Typed(Proxy):
    @on("session/list")
    async def pass_on(self, request: ListSessionsRequest, forward):
        return await forward(request)


class TypedOfVersion2(Proxy):
    @on("session/list")
    async def pass_on(self, request: ListSessionsRequestV2, forward):
        return await forward()


class TypedOfOneVersion(Proxy):
    @on("session/load")
    async def pass_on(self, request: LoadSessionRequest, forward):
        return await forward()


class Twice(Proxy):
    @on("session/list")
    async def first(self, request: ListSessionsRequest, forward):
        return await forward()

    @on("session/list")
    async def second(self, params, forward):
        return await forward()


class Setup(Proxy):
    @on_session_setup
    async def set_up(self, setup, forward):
        return await forward()

    @slash("do", "Do it")
    async def do(self, session, arguments):
        return "done"


class Prompted(Proxy):
    @on_prompt
    async def prompted(self, session, prompt, forward):
        return await forward()


class Opened(Proxy):
    @on_session
    async def opened(self, session):
        session.id.upper()


PARAMS = {"sessionId": "s", "cwd": "/", "mcpServers": [], "prompt": [], "protocolVersion": 1}
PASSED = [
    *((proxy, "session/list") for proxy in (Plain, Typed, TypedOfVersion2, Twice)),
    (TypedOfOneVersion, "session/load"),
    *((proxy, method) for proxy in (Setup, Opened) for method in ("session/new", "session/load")),
    (Prompted, "session/prompt"),
]


@pytest.mark.parametrize(("proxy", "method"), PASSED)
async def test_an_answer_that_does_not_fit_passes_a_handler_that_returns_it(
    acp_chain, proxy, method
):
    agent = FakeAgent()
    async with acp_chain(proxy(), agent, strict=True) as client:
        await client.initialize()
        for answer in NONSENSE:
            agent.handlers[method] = lambda params, answer=answer: answer
            assert await client.request(method, PARAMS) == answer


@pytest.mark.parametrize("proxy", [Plain, Setup, Prompted])
async def test_an_answer_to_initialize_that_does_not_fit_passes(acp_chain, proxy):
    for answer in (None, [], "x", 5):
        agent = FakeAgent(handlers={"initialize": lambda params, answer=answer: answer})
        async with acp_chain(proxy(), agent, strict=True) as client:
            assert await client.request("initialize", PARAMS) == answer


class Reads(Proxy):
    """Reads the answer to the message that it has forwarded."""

    @on("session/list")
    async def read(self, params, forward):
        answer = await forward()
        answer["sessions"].append({"sessionId": "more", "cwd": "/"})
        return answer


class ReadsTyped(Proxy):
    @on("session/list")
    async def read(self, request: ListSessionsRequest, forward):
        answer = await forward()
        [each.cwd.upper() for each in answer.sessions]
        return answer


class Asks(Proxy):
    """Sends a request of its own."""

    @on("session/list")
    async def read(self, params):
        sessions = (await self.agent.request("session/list", {}))["sessions"]
        return {"sessions": [each for each in sessions if each.get("cwd")]}


class ReadsSetup(Proxy):
    @on_session_setup
    async def read(self, setup, forward):
        answer = await forward()
        answer["sessionId"].upper()
        return answer


@pytest.mark.parametrize(
    ("proxy", "method", "answer", "problem"),
    [
        (Reads, "session/list", None, "expected object, got null"),
        (Reads, "session/list", [], "expected object, got an array"),
        (Reads, "session/list", {}, "sessions: expected array, got nothing"),
        (Reads, "session/list", {"sessions": "x"}, "sessions: expected array, got a string"),
        (ReadsTyped, "session/list", None, "expected object, got null"),
        (ReadsTyped, "session/list", 5, "expected object, got a number"),
        (Asks, "session/list", None, "expected object, got null"),
        (Asks, "session/list", {"sessions": "x"}, "sessions: expected array, got a string"),
        (ReadsSetup, "session/new", None, "expected object, got null"),
        (ReadsSetup, "session/new", {"sessionId": 5}, "sessionId: expected string, got a number"),
    ],
)
async def test_a_handler_that_fails_on_an_answer_blames_who_answered(
    acp_chain, logged, proxy, method, answer, problem
):
    agent = FakeAgent(handlers={method: lambda params: answer})
    async with acp_chain(proxy(), agent) as client:
        await client.initialize()
        errors = [await refusal(client.request, method, PARAMS) for _ in range(2)]

    text = f"Invalid result of {method}: {problem} (answered by fake-agent, read by "
    assert {each.message for each in errors} == {f"{text}{proxy.__name__})"}
    assert {each.code for each in errors} == {-32603}
    assert errors[0].data == {"component": "fake-agent"}
    [line] = logged()
    assert (line["event"][:17], line["part"]) == ("malformed message", "result")
    assert (line["sender"], line["method"], line["problem"]) == ("fake-agent", method, problem)
    assert "exception" not in line


class Breaks(Proxy):
    """Answers with something else than it has got."""

    @on("session/list")
    async def break_it(self, params, forward):
        await forward()
        return {"sessions": 5}


@pytest.mark.parametrize(
    ("between", "answer", "blamed"),
    [
        (Plain, {"sessions": 5}, "fake-agent"),
        (Prompted, {"sessions": 5}, "fake-agent"),
        (Breaks, {"sessions": []}, "Breaks"),
    ],
)
async def test_a_proxy_that_passes_an_answer_on_has_not_made_it(acp_chain, between, answer, blamed):
    agent = FakeAgent(handlers={"session/list": lambda params: answer})
    async with acp_chain(Reads(), between(), agent) as client:
        await client.initialize()
        error = await refusal(client.request, "session/list", PARAMS)

    assert error.message.endswith(f"(answered by {blamed}, read by Reads)")


class Decides(Proxy):
    @on_permission
    async def decide(self, session, asked, forward):
        answer = await forward()
        answer["outcome"]["optionId"].upper()
        return answer

    @on_question
    async def asked(self, session, question, forward):
        answer = await forward()
        answer["action"].upper()
        return answer


@pytest.mark.parametrize(
    ("method", "problem"),
    [
        ("session/request_permission", "outcome: expected object, got a number"),
        ("elicitation/create", "action: expected string, got nothing"),
    ],
)
async def test_a_client_is_blamed_for_its_answers(acp_chain, method, problem):
    agent = FakeAgent()
    async with acp_chain(Decides(), agent) as client:
        client.handlers[method] = lambda params: {"outcome": 5}
        await client.initialize()
        params = {"sessionId": await client.new_session("/"), "options": [], "toolCall": {}}
        params |= {"toolCall": {"toolCallId": "1"}, "mode": "form", "message": "m"}
        params["requestedSchema"] = {"type": "object", "properties": {}}
        error = await refusal(agent.endpoint.request, method, params)

    text = f"Invalid result of {method}: {problem} (answered by client, read by Decides)"
    assert error.message == text


class Observes(Reads):
    on_error = "pass"


async def test_an_observer_passes_the_answer_that_it_cannot_read(acp_chain):
    agent = FakeAgent(handlers={"session/list": lambda params: [5]})
    async with acp_chain(Observes(), agent) as client:
        await client.initialize()

        assert await client.request("session/list", PARAMS) == [5]


class Beside(Proxy):
    """Asks in a task, and after an answer."""

    @on_session
    async def opened(self, session):
        await self._list()

    @on("session/list")
    async def listed(self, params, forward):
        self.done = trio.Event()
        self.start_soon(self._in_task)
        await self.done.wait()
        return {"sessions": []}

    async def _in_task(self):
        try:
            await self._list()
        finally:
            self.done.set()

    async def _list(self):
        [each["cwd"] for each in (await self.agent.request("session/list", {}))["sessions"]]


async def test_a_task_and_an_event_after_the_answer_blame_who_answered(acp_chain, logged):
    agent = FakeAgent(handlers={"session/list": lambda params: {"sessions": 5}})
    async with acp_chain(Beside(), agent) as client:
        await client.initialize()
        await client.new_session("/")
        await client.request("session/list", PARAMS)

    lines = logged()
    assert [line["part"] for line in lines] == ["result"] * 2, lines
    assert {line["problem"] for line in lines} == {"sessions: expected array, got a number"}


class Fails(Proxy):
    @on("session/list")
    async def fail(self, params, forward):
        await forward()
        raise KeyError("x")


async def test_a_failure_on_a_good_answer_stays_one_of_the_plugin(acp_chain, logged):
    agent = FakeAgent(handlers={"session/list": lambda params: {"sessions": []}})
    async with acp_chain(Fails(), agent) as client:
        await client.initialize()
        error = await refusal(client.request, "session/list", PARAMS)

    assert error.message.startswith("Fails failed in session/list: KeyError: 'x' (")
    assert error.data["component"] == "Fails"
    assert [line["event"] for line in logged()] == ["handler failed"]


IN_FILE = """\
from conductor.proxy import Proxy, on


class Reads(Proxy):
    @on("session/list")
    async def read(self, params, forward):
        answer = await forward()
        return {"sessions": [*answer["sessions"]]}

    @on("session/request_permission")
    async def decide(self, params, forward):
        return {"outcome": {"outcome": params["toolCall"]["title"]}}
"""


@pytest.mark.slow
async def test_a_plugin_in_a_process_of_its_own_names_the_side_of_the_peer(acp_chain, tmp_path):
    (tmp_path / "reads.py").write_text(IN_FILE)
    isolated = ComponentSpec(name="reads", use=f"{tmp_path}/reads.py:Reads", isolate=True)
    agent = FakeAgent(handlers={"session/list": lambda params: None})
    async with acp_chain(isolated, agent) as client:
        await client.initialize()
        answered = await refusal(client.request, "session/list", PARAMS)
        asked = await refusal(agent.endpoint.request, "session/request_permission", {})

    text = "Invalid result of session/list: expected object, got null"
    assert answered.message == f"{text} (answered by agent, read by reads)"
    assert asked.message.endswith(" (sent by agent)")
