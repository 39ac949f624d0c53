"""`@on_permission`, and permissions that a proxy itself asks for."""

from __future__ import annotations

import pytest
from support.event_samples import CALL, opened

from conductor.proxy import (
    Proxy,
    on_permission,
    slash,
)
from conductor.testing import FakeAgent


async def test_on_permission_answers_with_the_merged_tool_call(chain):
    class P(Proxy):
        @on_permission
        async def decide(self, session, asked, forward):
            return asked.allow() if asked.tool_call.kind == "read" else asked.deny()

    async def ask(session):
        for call in ({"toolCallId": "1"}, {"toolCallId": "2", "kind": "edit"}):
            answers.append(await agent.ask(session, call))

    answers, agent = [], FakeAgent(turns=[[CALL, ask]])
    async with chain(P(), agent) as client:
        await client.prompt(await opened(client), "hi")

    assert answers == ["allow", "reject"]


async def test_an_answer_that_only_the_user_can_choose_is_not_allowed(chain):
    class P(Proxy):
        @on_permission
        async def decide(self, session, asked, forward):
            try:
                return asked.allow()
            except LookupError as exc:
                told.append(str(exc))
                return asked.deny()

    async def ask(session):
        names = {"o0": "Red", "o1": "Blue"}
        options = [{"optionId": o, "name": n, "kind": "allow_once"} for o, n in names.items()]
        params = {"sessionId": session, "toolCall": {"toolCallId": "1"}, "options": options}
        answers.append(await agent.endpoint.request("session/request_permission", params))

    told, answers, agent = [], [], FakeAgent(turns=[[ask]])
    async with chain(P(), agent) as client:
        await client.prompt(await opened(client), "hi")

    assert told == ["only the user can choose, `return await forward()`: Red, Blue"]
    assert answers == [{"outcome": {"outcome": "cancelled"}}]


@pytest.mark.parametrize(
    ("between", "known"),
    [
        ([], {"kind": "execute", "rawInput": {"command": "rm x"}}),
        ([{**CALL, "kind": "read"}], {"kind": "read"}),
        ([{**CALL, "status": "failed"}], {}),
    ],
)
async def test_a_permission_request_is_merged_with_earlier_ones_about_the_call(
    chain, between, known
):
    class P(Proxy):
        @on_permission
        async def decide(self, session, asked, forward):
            found.append((asked.tool_call.members, asked.evidence))
            return asked.deny()

    async def ask(session, **members):
        params = {"sessionId": session, "toolCall": {"toolCallId": "1", **members}, "options": []}
        await agent.endpoint.request("session/request_permission", params)

    async def ask_in_detail(session):
        await ask(session, kind="execute", rawInput={"command": "rm x"})

    found, agent = [], FakeAgent()
    agent.turns.append([CALL, ask_in_detail, *between, ask])
    async with chain(P(), agent) as client:
        session = await opened(client)
        await client.prompt(session, "hi")

    merged, evidence = found[-1]
    assert {name: merged[name] for name in ("kind", "rawInput") if name in merged} == known
    assert evidence.asked == {"toolCallId": "1"}
    assert evidence.announced.get("kind") in (known and "read", None)


@pytest.mark.parametrize(
    ("outcome", "allowed"),
    [
        ({"outcome": "selected", "optionId": "allow"}, "True"),
        ({"outcome": "selected", "optionId": "reject"}, "False"),
        ({"outcome": "cancelled"}, "False"),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
async def test_a_session_asks_for_permission_in_both_versions(chain, version, outcome, allowed):
    class Asking(Proxy):
        @slash("ask", "Ask")
        async def ask(self, session, arguments):
            return str(await session.ask("Delete a", "It is old.", kind="delete"))

    asked = []
    async with chain(Asking(), FakeAgent()) as client:

        def decide(params):
            asked.append(params)
            return {"outcome": outcome}

        client.handlers["session/request_permission"] = decide
        await client.initialize(version=version)
        await client.prompt(await client.new_session(), "/ask")

    assert client.transcript.text() == allowed
    [params] = asked
    assert [option["kind"] for option in params["options"]] == ["allow_once", "reject_once"]
    if version == 1:
        call = {**params["toolCall"], "toolCallId": ""}
        content = {"type": "content", "content": {"type": "text", "text": "It is old."}}
        assert call == {
            "toolCallId": "",
            "title": "Delete a",
            "kind": "delete",
            "content": [content],
        }
    else:
        assert (params["title"], params["description"]) == ("Delete a", "It is old.")
