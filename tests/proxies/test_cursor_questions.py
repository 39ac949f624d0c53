from __future__ import annotations

import pytest

from conductor.errors import RequestError
from conductor.testing import FakeAgent
from proxies.cursor_questions import CursorQuestions
from proxies.elicitation import Elicitation
from proxies.v1_v2 import V1V2

MODE = {
    "id": "mode",
    "prompt": "Which mode?",
    "options": [{"id": "agent", "label": "Agent"}, {"id": "plan", "label": "Plan"}],
}
TREES = {**MODE, "id": "trees", "prompt": "Which trees?", "allowMultiple": True}
NAME = {"id": "name", "prompt": "Which name?", "options": []}
PLAN = {
    "toolCallId": "p",
    "name": "Tidy up",
    "overview": "In two steps.",
    "plan": "1. Read.",
    "todos": [{"id": "1", "content": "Read", "status": "in_progress"}],
    "phases": [{"name": "Later", "todos": [{"content": "Write"}]}],
}
FORMS = {"elicitation": {"form": {}}}


def asking(method, params):
    """An agent that asks in its turn, and says what it has learned."""
    agent = FakeAgent()

    async def ask(session):
        try:
            agent.say(session, str(await agent.endpoint.request(method, params)))
        except RequestError as exc:
            agent.say(session, f"{exc.code} {exc.message}")

    agent.turns.append([ask])
    return agent


def question(*asked, **more):
    return asking("cursor/ask_question", {"toolCallId": "q", "questions": list(asked), **more})


async def run(chain, *components, handlers=None, capabilities=None):
    async with chain(*components) as client:
        client.handlers.update(handlers or {})
        await client.initialize(capabilities=capabilities or {})
        await client.prompt(await client.new_session("/work"), "go")
    return client.transcript


def choosing(*options):
    """A client in which the user chooses these options, one after the other."""
    waiting = list(options)

    def choose(params):
        if (option := waiting.pop(0)) is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": option}}

    return {"session/request_permission": choose}


@pytest.mark.parametrize(
    "method", ["cursor/ask_question", "cursor/create_plan", "cursor/update_todos"]
)
async def test_a_client_that_knows_the_requests_answers_them(chain, method):
    params = {"toolCallId": "1", "example": {"kept": True}}
    handlers = {method: lambda params: {"told": params}}
    transcript = await run(chain, CursorQuestions(), asking(method, params), handlers=handlers)

    assert transcript.text() == str({"told": params})
    assert [each.label for each in transcript if "permission" in each.label] == []


async def test_questions_are_permission_requests_one_after_the_other(chain):
    agent = question(MODE, TREES, title="Setup")
    transcript = await run(chain, CursorQuestions(), agent, handlers=choosing("1", "0"))

    asked = [each.params for each in transcript.of("session/request_permission", "request")]
    titles = [each["toolCall"]["title"] for each in asked]
    assert titles == ["Setup: Which mode?", "Setup: Which trees?"]
    assert [(each["name"], each["kind"]) for each in asked[0]["options"]] == [
        ("Agent", "allow_once"),
        ("Plan", "allow_once"),
        ("Skip", "reject_once"),
    ]
    answers = [
        {"questionId": "mode", "selectedOptionIds": ["plan"]},
        {"questionId": "trees", "selectedOptionIds": ["agent"]},
    ]
    assert transcript.text() == str({"outcome": {"outcome": "answered", "answers": answers}})


@pytest.mark.parametrize(
    ("asked", "chosen", "outcome"),
    [
        (MODE, "skip", {"outcome": "skipped", "reason": "the user has skipped it"}),
        (MODE, None, {"outcome": "cancelled"}),
        (MODE, "unknown", {"outcome": "cancelled"}),
        (
            NAME,
            None,
            {"outcome": "skipped", "reason": "the client cannot ask for a text: Which name?"},
        ),
    ],
)
async def test_a_question_without_an_answer_has_the_outcome_that_cursor_knows(
    chain, asked, chosen, outcome
):
    transcript = await run(chain, CursorQuestions(), question(asked), handlers=choosing(chosen))

    assert transcript.text() == str({"outcome": outcome})


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (
            {"action": "accept", "content": {"mode": "plan", "trees": ["agent", "x"]}},
            {
                "outcome": "answered",
                "answers": [
                    {"questionId": "mode", "selectedOptionIds": ["plan"]},
                    {"questionId": "trees", "selectedOptionIds": ["agent"]},
                    {"questionId": "name", "selectedOptionIds": []},
                ],
            },
        ),
        (
            {"action": "accept", "content": {"mode": "plan", "name": "Ann"}},
            {"outcome": "skipped", "reason": "Which mode? plan; Which trees? ; Which name? Ann"},
        ),
        ({"action": "decline"}, {"outcome": "skipped", "reason": "the user has declined"}),
        ({"action": "cancel"}, {"outcome": "cancelled"}),
        ({}, {"outcome": "cancelled"}),
    ],
)
async def test_a_client_with_forms_gets_one_form(chain, result, outcome):
    handlers = {"elicitation/create": lambda params: result}
    agent = question(MODE, TREES, NAME)
    transcript = await run(chain, CursorQuestions(), agent, handlers=handlers, capabilities=FORMS)

    (asked,) = transcript.of("elicitation/create", "request")
    schema = asked.params["requestedSchema"]
    choices = [{"const": "agent", "title": "Agent"}, {"const": "plan", "title": "Plan"}]
    assert schema["properties"] == {
        "mode": {"type": "string", "title": "Which mode?", "oneOf": choices},
        "trees": {"type": "array", "title": "Which trees?", "items": {"anyOf": choices}},
        "name": {"type": "string", "title": "Which name?"},
    }
    assert schema["required"] == ["mode"]
    assert transcript.text() == str({"outcome": outcome})


async def test_with_the_adapter_of_elicitations_one_choice_is_one_permission_request(chain):
    transcript = await run(
        chain, Elicitation(), CursorQuestions(), question(MODE), handlers=choosing("1")
    )

    answers = [{"questionId": "mode", "selectedOptionIds": ["plan"]}]
    assert transcript.text() == str({"outcome": {"outcome": "answered", "answers": answers}})


@pytest.mark.parametrize("outcome", ["accepted", "rejected", None])
async def test_a_plan_is_shown_and_asked_about(chain, outcome):
    agent = asking("cursor/create_plan", PLAN)
    transcript = await run(chain, CursorQuestions(), agent, handlers=choosing(outcome))

    (plan,) = [each for each in transcript.updates() if each["sessionUpdate"] == "plan"]
    assert plan["entries"] == [
        {"content": "Read", "priority": "medium", "status": "in_progress"},
        {"content": "Write", "priority": "medium", "status": "pending"},
    ]
    (asked,) = transcript.of("session/request_permission", "request")
    assert asked.params["toolCall"]["title"] == "Carry out the plan: Tidy up"
    assert asked.params["toolCall"]["kind"] == "switch_mode"
    shown = "\n\n# Tidy up\n\nIn two steps.\n\n1. Read.\n\n"
    learned = {"outcome": {"outcome": outcome or "cancelled"}}
    assert transcript.text() == f"{shown}{learned}"


async def test_todos_that_are_a_request_become_a_plan(chain):
    agent = asking("cursor/update_todos", {"toolCallId": "t", "todos": PLAN["todos"]})
    transcript = await run(chain, CursorQuestions(), agent)

    assert transcript.updates()[0]["entries"][0]["content"] == "Read"
    assert transcript.text() == "{}"


async def test_the_session_is_that_of_the_tool_call(chain):
    agent = FakeAgent()
    async with chain(CursorQuestions(), agent) as client:
        await client.initialize(capabilities={})
        first, second = [await client.new_session("/work") for _ in range(2)]

        async def ask(session):
            call = {"toolCallId": "q", "title": "x", "status": "in_progress"}
            agent.update(first, {"sessionUpdate": "tool_call", **call})
            params = {"toolCallId": "q", "questions": [MODE]}
            await agent.endpoint.request("cursor/ask_question", params)

        agent.turns.append([ask])
        await client.prompt(second, "go")
    (asked,) = client.transcript.of("session/request_permission", "request")
    assert asked.params["sessionId"] == first


@pytest.mark.parametrize("params", [{}, {"questions": 1}, {"questions": [{"id": "x"}]}])
async def test_malformed_questions_are_an_error_that_names_the_proxy(chain, params):
    transcript = await run(chain, CursorQuestions(), asking("cursor/ask_question", params))

    assert transcript.text().startswith("-32602 cursor_questions: the questions are not")


async def test_a_question_outside_of_a_turn_is_an_error_that_names_the_proxy(chain):
    agent = FakeAgent()
    async with chain(CursorQuestions(), agent) as client:
        await client.initialize()
        with pytest.raises(RequestError, match=r"cursor_questions: .* belongs to no session"):
            await agent.endpoint.request("cursor/create_plan", PLAN)


async def test_a_client_that_cannot_ask_is_an_error_that_names_the_proxy(chain):
    def refuse(params):
        raise RequestError(-32603, "no window")

    handlers = {"session/request_permission": refuse}
    transcript = await run(chain, CursorQuestions(), question(MODE), handlers=handlers)

    assert (
        "-32603 cursor_questions: the client did not ask the user: no window" in transcript.text()
    )


async def test_a_client_of_version_2_is_asked_in_its_form(chain):
    async with chain(V1V2(1), CursorQuestions(), question(MODE)) as client:
        await client.initialize(version=2)
        await client.prompt_turn(await client.new_session("/work"), "go")

    (asked,) = client.transcript.of("session/request_permission", "request")
    assert asked.params["subject"]["toolCall"]["toolCallId"]
    assert [each["name"] for each in asked.params["options"]][:2] == ["Agent", "Plan"]
    assert "agent" in client.transcript.text()
