from __future__ import annotations

import pytest
import trio

from conductor.errors import RequestError
from conductor.testing import FakeAgent
from proxies.elicitation import Elicitation
from proxies.v1_v2 import V1V2

CHOICE = {"properties": {"x": {"type": "string", "enum": ["left", "right"]}}, "required": ["x"]}
NAME = {"properties": {"name": {"type": "string", "minLength": 2}}, "required": ["name"]}
PAGE = {"mode": "url", "url": "https://a.example/1", "elicitationId": "e1"}
FORMS = {"elicitation": {"form": {}}}
ENDED = {"stopReason": "end_turn"}


def form(schema):
    return {"mode": "form", "requestedSchema": {"type": "object", **schema}}


def asking(*questions, **more):
    """An agent that asks these questions in its first turn, and says what it has learned. It asks
    clients alone that announce the mode."""
    agent = FakeAgent(turns=[])

    async def ask(session):
        request = agent.transcript.of("initialize", "request")[0].params
        known = request["clientCapabilities"].get("elicitation") or {}
        for number, each in enumerate(questions):
            if known.get(each["mode"]) is None:
                agent.say(session, "not asked;")
                continue
            params = {"sessionId": session, "message": f"Question {number}?", **each, **more}
            try:
                answered = await agent.endpoint.request("elicitation/create", params)
            except RequestError as exc:
                agent.say(session, f"{exc.code} {exc};")
            else:
                agent.say(session, f"{answered};")

    agent.turns.append([ask])
    return agent


async def open_session(client, capabilities=None):
    await client.initialize(capabilities=capabilities or {})
    return await client.new_session("/work")


def permissions(client):
    return [each.params for each in client.transcript.of("session/request_permission", "request")]


async def test_a_choice_is_a_permission_request(chain):
    async with chain(Elicitation(), asking(form(CHOICE))) as client:
        assert await client.prompt(await open_session(client), "go") == ENDED

    assert client.transcript.text() == "{'action': 'accept', 'content': {'x': 'left'}};"
    (asked,) = permissions(client)
    assert asked["toolCall"]["title"] == "Question 0?"
    assert [(each["name"], each["kind"]) for each in asked["options"]] == [
        ("left", "allow_once"),
        ("right", "allow_once"),
        ("Decline", "reject_once"),
    ]


async def test_a_permission_request_has_what_the_field_and_its_values_say(chain):
    """A server's message may be no more than `Please confirm`."""
    values = [{"const": "all", "title": "All", "description": "2,000 files"}]
    field = {"type": "string", "title": "Delete which files?", "oneOf": values}
    async with chain(Elicitation(), asking(form({"properties": {"x": field}}))) as client:
        await client.prompt(await open_session(client), "go")

    (asked,) = permissions(client)
    assert asked["toolCall"]["title"] == "Question 0? Delete which files?"
    (content,) = asked["toolCall"]["content"]
    assert content["content"]["text"] == "- All: 2,000 files"


async def test_a_choice_is_a_text_in_a_client_with_one_option_of_each_kind(chain):
    agent = asking(form(CHOICE))
    async with chain(Elicitation(options_by_kind=True), agent) as client:
        session = await open_session(client)
        await client.prompt(session, "go")
        shown = client.transcript.text()
        await client.prompt(session, "right")

    assert "`x`: one of: left, right" in shown
    assert client.transcript.text()[len(shown) :].startswith("{'action': 'accept'")
    assert permissions(client) == []


@pytest.mark.parametrize(
    ("outcome", "action"),
    [
        ({"outcome": "selected", "optionId": "2"}, "decline"),
        ({"outcome": "selected", "optionId": "unknown"}, "cancel"),
        ({"outcome": "cancelled"}, "cancel"),
        (None, "cancel"),
    ],
)
async def test_the_users_choice_is_the_result(chain, outcome, action):
    async with chain(Elicitation(), asking(form(CHOICE))) as client:
        client.handlers["session/request_permission"] = lambda params: {"outcome": outcome}
        await client.prompt(await open_session(client), "go")

    assert client.transcript.text() == f"{{'action': '{action}'}};"


async def test_a_client_that_refuses_permission_requests_is_an_error_of_the_adapter(chain):
    async with chain(Elicitation(), asking(form(CHOICE))) as client:
        del client.handlers["session/request_permission"]
        await client.prompt(await open_session(client), "go")

    assert client.transcript.text().startswith(
        "-32601 elicitation: the client did not ask the user: "
    )


async def test_a_page_is_shown_with_its_address_and_its_completion_is_kept_from_the_client(chain):
    agent = asking(PAGE)
    async with chain(Elicitation(), agent) as client:
        session = await open_session(client)
        await client.prompt(session, "go")
        agent.endpoint.notify("elicitation/complete", {"elicitationId": "e1"})
        await client.prompt(session, "again")

    assert permissions(client)[0]["toolCall"]["title"] == "Question 0? https://a.example/1"
    assert client.transcript.text() == "{'action': 'accept'};"
    assert client.transcript.of("elicitation/complete") == []


async def test_a_text_is_asked_in_the_conversation_and_the_next_prompt_answers_it(chain):
    agent = asking(form(NAME))
    async with chain(Elicitation(), agent) as client:
        session = await open_session(client)
        assert await client.prompt(session, "go") == ENDED
        assert "Question 0?" in client.transcript.text()
        assert "accept" not in client.transcript.text()
        assert await client.prompt(session, "x") == ENDED
        assert "`name`: the length must be at least 2" in client.transcript.text()
        assert await client.prompt(session, "rocket") == ENDED
        assert client.transcript.text().endswith(
            "{'action': 'accept', 'content': {'name': 'rocket'}};"
        )
        await client.prompt(session, "next")

    prompts = agent.transcript.of("session/prompt", "request")
    assert [each.params["prompt"][0]["text"] for each in prompts] == ["go", "next"]


async def test_questions_are_asked_one_after_the_other(chain):
    async with chain(Elicitation(), asking(form(NAME), form(NAME))) as client:
        session = await open_session(client)
        await client.prompt(session, "go")
        await client.prompt(session, "one")
        assert "Question 1?" in client.transcript.text()
        await client.prompt(session, "decline")

    assert client.transcript.text().endswith("{'action': 'decline'};")


async def test_questions_at_once_wait_for_each_other(chain):
    agent = FakeAgent(turns=[])
    learned = []

    async def ask(session, name):
        params = {"sessionId": session, "message": name, **form(NAME)}
        answered = await agent.endpoint.request("elicitation/create", params)
        learned.append((name, answered["content"]["name"]))

    async def ask_both(session):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, session, "first")
            nursery.start_soon(ask, session, "second")

    agent.turns.append([ask_both, "done"])
    async with chain(Elicitation(), agent) as client:
        session = await open_session(client)
        await client.prompt(session, "go")
        await client.prompt(session, "one")
        await client.prompt(session, "two")

    assert sorted(text for _, text in learned) == ["one", "two"]
    assert client.transcript.text().endswith("done")


async def test_a_question_outside_of_a_turn_is_answered_by_the_next_prompt(chain):
    agent = FakeAgent()
    async with chain(Elicitation(), agent) as client:
        session = await open_session(client)
        found = []

        async def ask():
            params = {"sessionId": session, "message": "Name?", **form(NAME)}
            found.append(await agent.endpoint.request("elicitation/create", params))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await client.transcript.wait("session/update agent_message_chunk")
            assert await client.prompt(session, "rocket") == ENDED

    assert found == [{"action": "accept", "content": {"name": "rocket"}}]
    assert agent.transcript.of("session/prompt") == []


async def test_a_cancelled_turn_cancels_the_question(chain):
    async with chain(Elicitation(), asking(form(NAME))) as client:
        session = await open_session(client)
        await client.prompt(session, "go")
        client.notify("session/cancel", {"sessionId": session})
        await client.transcript.wait("session/update agent_message_chunk", count=2)

    assert client.transcript.text().endswith("{'action': 'cancel'};")


async def test_the_failure_of_a_turn_that_the_client_does_not_wait_for_is_told(chain):
    agent = asking(form(NAME))
    agent.turns[0].append(RequestError(-32603, "no disk"))
    async with chain(Elicitation(), agent) as client:
        session = await open_session(client)
        await client.prompt(session, "go")
        client.notify("session/cancel", {"sessionId": session})
        await client.transcript.wait("session/update agent_message_chunk", count=3)

    assert "[The agent's turn has failed: no disk]" in client.transcript.text()


async def test_the_error_of_a_turn_is_the_answer_of_the_prompt_that_waits(chain):
    agent = asking(form(NAME))
    agent.turns[0].append(RequestError(-32603, "no disk"))
    async with chain(Elicitation(), agent) as client:
        session = await open_session(client)
        await client.prompt(session, "go")
        with pytest.raises(RequestError, match="no disk"):
            await client.prompt(session, "rocket")


@pytest.mark.parametrize(
    "params", [form({"properties": {"x": {"type": "_new"}}}), {"mode": "form", "sessionId": None}]
)
async def test_what_cannot_be_asked_is_an_error_of_the_adapter(chain, params):
    async with chain(Elicitation(), asking(params)) as client:
        await client.prompt(await open_session(client), "go")

    assert client.transcript.text().startswith("-32602 elicitation: the client has no forms")


async def test_what_the_client_can_show_passes_and_the_rest_is_asked(chain):
    agent = asking(form(NAME), PAGE)
    async with chain(Elicitation(), agent) as client:
        client.handlers["elicitation/create"] = lambda params: {"action": "decline"}
        assert await client.prompt(await open_session(client, FORMS), "go") == ENDED

    assert client.transcript.text() == "{'action': 'decline'};{'action': 'accept'};"
    announced = agent.transcript.of("initialize", "request")[0].params["clientCapabilities"]
    assert announced == {"elicitation": {"form": {}, "url": {}}}


async def test_a_question_that_the_agent_cancels_makes_room_for_the_next(chain):
    agent = FakeAgent(turns=[])

    async def ask(session):
        params = {"sessionId": session, "message": "First?", **form(NAME)}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.endpoint.request, "elicitation/create", params)
            await until_asked.wait()
            nursery.cancel_scope.cancel()
        params["message"] = "Second?"
        answered = await agent.endpoint.request("elicitation/create", params)
        agent.say(session, answered["content"]["name"])

    until_asked = trio.Event()
    agent.turns.append([ask])
    async with chain(Elicitation(), agent) as client:
        session = await open_session(client)
        await client.prompt(session, "go")
        until_asked.set()
        await client.transcript.wait("session/update agent_message_chunk", count=2)
        await client.prompt(session, "rocket")

    assert client.transcript.text().endswith("rocket")


@pytest.mark.parametrize("asked", [form(CHOICE), PAGE, form(NAME)], ids=["choice", "page", "text"])
async def test_a_client_of_version_2_without_forms_is_asked_by_an_agent_of_version_1(chain, asked):
    async with chain(V1V2(1), Elicitation(), asking(asked)) as client:
        await client.initialize(version=2)
        session = await client.new_session("/work")
        end = await client.prompt_turn(session, "go")
        if "Question 0?" in client.transcript.text():
            end = await client.prompt_turn(session, "Ada")

    assert end["stopReason"] == "end_turn"
    assert "'action': 'accept'" in client.transcript.text()
