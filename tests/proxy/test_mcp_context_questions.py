"""What a tool asks: the user, and the agent's model; through the agent, or else the ACP client."""

from __future__ import annotations

from typing import Any

import attrs
import trio
from mcp.types import CreateMessageResult, ElicitResult, ErrorData, TextContent
from support.bridge_harness import mcp_client
from support.context_notes import (
    ERAS,
    MODERN,
    Choice,
    Notes,
    accept,
    answering,
    notes_in_session,
    text_of,
)

from conductor.proxy import (
    Context,
    Proxy,
    tool,
)
from conductor.testing import FakeAgent, open_chain


@ERAS
async def test_a_tool_asks_the_user_through_the_agent(mode):
    asked, answer = answering(
        accept("ann", loud=True), ElicitResult(action="decline"), ElicitResult(action="cancel")
    )
    async with (
        notes_in_session() as situation,
        mcp_client(situation.entry, mode=mode, elicitation_callback=answer) as mcp,
    ):
        said = [text_of(await mcp.call_tool("ask", {"question": f"Who {n}?"})) for n in (1, 2, 3)]

    assert said == ["ANN", "decline", "cancel"]
    assert asked == ["Who 1?", "Who 2?", "Who 3?"]


@ERAS
async def test_a_tool_asks_again_with_a_json_schema(mode):
    asked, answer = answering(accept("x"), accept("y"))
    async with (
        notes_in_session() as situation,
        mcp_client(situation.entry, mode=mode, elicitation_callback=answer) as mcp,
    ):
        result = await mcp.call_tool("ask_twice", {})

    assert result.structured_content == {"result": ["x", "y"]}
    assert asked == ["first?", "second?"]


@ERAS
async def test_a_tool_asks_two_questions_at_once(mode):
    async def answer(_context: Any, params: Any) -> ElicitResult:
        return accept(params.message.removesuffix("?"))

    async with (
        notes_in_session() as situation,
        mcp_client(situation.entry, mode=mode, elicitation_callback=answer) as mcp,
    ):
        result = await mcp.call_tool("ask_both", {})

    assert result.structured_content == {"one?": "one", "two?": "two"}


@ERAS
async def test_a_question_that_is_given_up_is_not_waited_for(mode):
    _, answer = answering(ElicitResult(action="decline"))  # the question may still arrive
    async with (
        notes_in_session() as situation,
        mcp_client(situation.entry, mode=mode, elicitation_callback=answer) as mcp,
    ):
        result = await mcp.call_tool("ask_impatiently", {})

    assert text_of(result) == "no time"


@ERAS
async def test_an_answer_that_does_not_fit_the_model_names_the_fields(mode):
    _, answer = answering(ElicitResult(action="accept", content={"name": 5}))
    async with (
        notes_in_session() as situation,
        mcp_client(situation.entry, mode=mode, elicitation_callback=answer) as mcp,
    ):
        result = await mcp.call_tool("ask", {"question": "Who?"})

    assert result.is_error
    assert "The answer of the user does not fit the schema: name" in text_of(result)


@ERAS
async def test_the_acp_client_is_asked_if_the_agent_cannot(mode):
    asked: list[Any] = []

    def elicit(params: Any) -> Any:
        asked.append(params)
        return {"action": "accept", "content": {"name": "bob"}}

    elicitation = {"elicitation": {"form": {}, "url": {}}}
    async with notes_in_session(capabilities=elicitation) as situation:
        situation.client.handlers["elicitation/create"] = elicit
        async with mcp_client(situation.entry, mode=mode) as mcp:
            said = text_of(await mcp.call_tool("ask", {"question": "Who?"}))
            visited = text_of(await mcp.call_tool("visit", {}))

    assert (said, visited) == ("bob", "accept")
    form, url = asked
    assert form["requestedSchema"].pop("title") == "Choice"
    assert form == {
        "mode": "form",
        "sessionId": "session-1",
        "message": "Who?",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "name": {"title": "Name", "type": "string"},
                "loud": {"title": "Loud", "type": "boolean", "default": False},
            },
            "required": ["name"],
        },
    }
    assert url.pop("elicitationId").startswith("elicitation:")
    assert url == {
        "mode": "url",
        "sessionId": "session-1",
        "message": "Log in",
        "url": "https://example.org/login",
    }


@ERAS
async def test_a_question_that_no_one_can_answer_is_an_error_that_the_model_reads(mode):
    async with (
        notes_in_session() as situation,
        mcp_client(situation.entry, mode=mode) as mcp,
    ):
        asked = await mcp.call_tool("ask", {"question": "Who?"})
        sampled = await mcp.call_tool("think", {"about": "life"})

    assert asked.is_error
    assert sampled.is_error
    assert "neither the agent's MCP client nor the ACP client supports form" in text_of(asked)
    assert "supports no sampling" in text_of(sampled)


@ERAS
async def test_a_tool_samples_the_model_of_the_agent(mode):
    seen: list[Any] = []

    async def sample(_context: Any, params: Any) -> CreateMessageResult:
        seen.append((params.messages[0].content.text, params.max_tokens, params.system_prompt))
        content = TextContent(type="text", text="42")
        return CreateMessageResult(role="assistant", content=content, model="m1")

    async with (
        notes_in_session() as situation,
        mcp_client(situation.entry, mode=mode, sampling_callback=sample) as mcp,
    ):
        result = await mcp.call_tool("think", {"about": "life"})

    assert text_of(result) == "m1: 42"
    assert seen == [("life", 10, "Be brief.")]


async def test_a_refusal_of_the_agents_mcp_client_is_an_error_that_the_model_reads():
    async def refuse(_context: Any, _params: Any) -> ErrorData:
        return ErrorData(code=-32050, message="no model today")

    async with (
        notes_in_session() as situation,
        mcp_client(situation.entry, mode="legacy", sampling_callback=refuse) as mcp,
    ):
        result = await mcp.call_tool("think", {"about": "life"})

    assert result.is_error
    assert text_of(result) == "Error executing tool think: no model today (-32050)"


async def test_an_agent_that_can_show_forms_only_is_not_asked_to_open_a_page():
    agent = FakeAgent(capabilities={"mcpCapabilities": {"acp": True}})
    async with open_chain(Notes(), agent, bridged=False) as client:
        client.handlers["elicitation/create"] = lambda params: {"action": "decline"}
        await client.initialize(capabilities={"elicitation": {"url": {}}})
        await client.new_session("/work")
        [given] = [h.params for h in agent.transcript if h.method == "session/new"]
        call = {"name": "visit", "arguments": {}, "_meta": MODERN}
        asked = {"requestId": "1", "method": "tools/call", "params": call}
        server = given["mcpServers"][0]["serverId"]
        answer = await agent.endpoint.request("mcp/message", {"serverId": server, **asked})

    assert answer["result"]["structuredContent"] == {"result": "decline"}


@ERAS
async def test_a_call_that_is_cancelled_while_the_user_is_asked_ends(mode):
    async def answer(_context: Any, _params: Any) -> ElicitResult:
        await trio.sleep_forever()
        raise AssertionError

    async with (
        notes_in_session() as situation,
        mcp_client(situation.entry, mode=mode, elicitation_callback=answer) as mcp,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(mcp.call_tool, "wait_for_user", {})
        await situation.notes.asking.wait()
        nursery.cancel_scope.cancel()
    with trio.fail_after(5):
        await situation.notes.cancelled.wait()


async def test_calls_that_the_client_does_not_repeat_are_cancelled_when_64_newer_ones_wait():
    ended: list[int] = []

    @attrs.define(eq=False)
    class Waiting(Proxy):
        @tool
        async def ask(self, number: int, context: Context) -> str:
            try:
                await context.elicit("Who?", Choice)
            finally:
                ended.append(number)
            return ""

    agent = FakeAgent(
        capabilities={"mcpCapabilities": {"acp": True}},
        handlers={"session/close": lambda params: {}},
    )
    async with open_chain(Waiting(), agent, bridged=False) as client:
        await client.initialize()
        await client.new_session("/work")
        [given] = [h.params for h in agent.transcript if h.method == "session/new"]
        for number in range(1, 67):
            call = {"name": "ask", "arguments": {"number": number}, "_meta": MODERN}
            asked = {"requestId": f"r{number}", "method": "tools/call", "params": call}
            server = given["mcpServers"][0]["serverId"]
            answer = await agent.endpoint.request("mcp/message", {"serverId": server, **asked})
            assert answer["result"]["resultType"] == "input_required"
        assert ended == [1, 2]

        late = {"requestState": answer["result"]["requestState"], "inputResponses": {}}
        call = {"name": "ask", "arguments": {"number": 66}, "_meta": MODERN, **late}
        asked = {"requestId": "r67", "method": "tools/call", "params": call}
        again = await agent.endpoint.request("mcp/message", {"serverId": server, **asked})
        assert list(again["result"]["inputRequests"]) == ["question-1"]  # not answered
        asked["requestId"] = "r68"
        gone = await agent.endpoint.request("mcp/message", {"serverId": server, **asked})
        assert gone["result"]["isError"]
        assert "does not wait for an answer any more" in gone["result"]["content"][0]["text"]
        await client.request("session/close", {"sessionId": "session-1"})
        with trio.fail_after(5):
            while len(ended) < 66:
                await trio.lowlevel.checkpoint()
