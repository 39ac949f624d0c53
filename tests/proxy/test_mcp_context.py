"""`Context` in tools, resources and prompts, with a real MCP client behind the bridge.

`legacy` clients speak MCP 2025-11-25, in which servers send requests; `auto` ones 2026-07-28, in
which a call is answered with the server's questions and then repeated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from mcp.server.mcpserver import Context as SdkContext
from mcp.shared.exceptions import MCPError
from mcp.types import CreateMessageResult, ElicitResult, ErrorData, TextContent
from pydantic import BaseModel
from support.bridge_harness import mcp_client

from bridges.bridge import McpBridge
from conductor import log
from conductor.proxy import (
    Context,
    Proxy,
    RequestError,
    on_session,
    prompt,
    resource,
    tool,
)
from conductor.testing import FakeAgent, open_chain

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])


MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}
"""`_meta` of a request without a connection."""


class Choice(BaseModel):
    name: str
    loud: bool = False


@attrs.define(eq=False)
class Notes(Proxy):
    """Uses everything that a context has."""

    notes: dict[str, str] = attrs.field(factory=lambda: {"a": "first"})
    seen: list[Any] = attrs.field(factory=list)
    asking: trio.Event = attrs.field(factory=trio.Event)
    cancelled: trio.Event = attrs.field(factory=trio.Event)

    @tool
    async def count(self, to: int, context: Context) -> int:
        for number in range(1, to + 1):
            await context.report_progress(number, to, f"{number} of {to}")
        await context.log("warning", {"counted": to}, logger="notes")
        return to

    @tool
    async def ask(self, question: str, context: Context) -> str:
        answer = await context.elicit(question, Choice)
        if answer.action != "accept":
            return str(answer.action)
        return answer.data.name.upper() if answer.data.loud else str(answer.data.name)

    @tool
    async def ask_twice(self, context: Context) -> list[str]:
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        answers = [await context.elicit(each, schema) for each in ("first?", "second?")]
        return [answer.data["name"] for answer in answers]

    @tool
    async def ask_both(self, context: Context) -> dict[str, str]:
        answers = {}

        async def ask(question: str) -> None:
            answers[question] = (await context.elicit(question, Choice)).data.name

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "one?")
            nursery.start_soon(ask, "two?")
        return answers

    @tool
    async def ask_impatiently(self, context: Context) -> str:
        with trio.move_on_after(0):
            await context.elicit("Too late?", Choice)
        return "no time"

    @tool
    async def wait_for_user(self, context: Context) -> str:
        self.asking.set()
        try:
            await context.elicit("Still there?", Choice)
        except trio.Cancelled:
            self.cancelled.set()
            raise
        return "answered"

    @tool
    async def visit(self, context: Context) -> str:
        return str((await context.elicit_url("Log in", "https://example.org/login")).action)

    @tool
    async def think(self, about: str, context: Context) -> str:
        answer = await context.sample(about, max_tokens=10, system_prompt="Be brief.")
        assert isinstance(answer.content, TextContent)
        return f"{answer.model}: {answer.content.text}"

    @tool
    async def where(self, context: Context) -> str:
        session = context.session
        await session.say("looking")
        return f"{session.id} in {session.cwd}, {session.opened_by}"

    @tool
    async def old_context(self, context: SdkContext) -> str:
        return str(context.protocol_version)

    @tool
    async def crash(self, context: Context) -> str:
        raise RuntimeError("the database password is secret")

    @resource("notes://index", mime_type="application/json")
    async def index(self, context: Context) -> list[str]:
        """All names."""
        self.seen.append(context.session.cwd)
        return list(self.notes)

    @resource("notes://{name}", title="A note")
    async def note(self, name: str, context: Context) -> str:
        """One note."""
        if name not in self.notes:
            raise RequestError(-32602, f"no note {name!r}")
        answer = await context.elicit("Show it?", Choice)
        return f"{self.notes[name]}: {answer.action}"

    @resource("image://{name}{?size}", mime_type="image/png")
    async def image(self, name: str, size: str = "small") -> bytes:
        return f"{name} {size}".encode()

    @prompt(title="Summarize notes")
    async def summarize(self, topic: str, context: Context, words: int = 50) -> list[Any]:
        """Summarize the notes.

        Args:
            topic: What about.
        """
        return [
            f"About {topic}, in {words + 0} words, at {context.session.cwd}.",
            {"role": "assistant", "content": "Sure."},
        ]

    @prompt(name="ask-first")
    async def asked_prompt(self, context: Context) -> str:
        return str((await context.elicit("Which?", Choice)).data.name)

    @prompt
    async def broken(self) -> str:
        raise RequestError(-32050, "no notes yet")


@attrs.define(eq=False)
class Situation:
    client: Any
    agent: FakeAgent
    notes: Notes
    entry: dict[str, Any]
    """The server that the agent was given."""


@asynccontextmanager
async def notes_in_session(
    *, capabilities: dict[str, Any] | None = None, notes: Notes | None = None
) -> AsyncIterator[Situation]:
    notes, agent = notes or Notes(), FakeAgent()
    async with open_chain(notes, McpBridge(), agent, bridged=False) as client:
        await client.initialize(capabilities=capabilities or {})
        await client.new_session("/work")
        [given] = [h.params for h in agent.transcript if h.method == "session/new"]
        yield Situation(client, agent, notes, given["mcpServers"][0])


def answering(*answers: ElicitResult) -> tuple[list[str], Any]:
    """Questions so far, and an MCP client's callback that gives these answers."""
    left, asked = list(answers), []

    async def answer(_context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return left.pop(0)

    return asked, answer


def accept(name: str, **more: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": name, **more})


def text_of(result: Any) -> str:
    return str(result.content[0].text)


@ERAS
async def test_progress_and_log_messages_arrive_before_the_result(mode):
    happened: list[Any] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        happened.append((done, total, message))

    async def logged(params: Any) -> None:
        happened.append((params.level, params.data, params.logger))

    async with (
        notes_in_session() as situation,
        mcp_client(situation.entry, mode=mode, logging_callback=logged) as mcp,
    ):
        meta = {"io.modelcontextprotocol/logLevel": "info"}
        result = await mcp.call_tool("count", {"to": 2}, progress_callback=progress, meta=meta)
        happened.append(result.structured_content)

    assert happened == [
        (1, 2, "1 of 2"),
        (2, 2, "2 of 2"),
        ("warning", {"counted": 2}, "notes"),
        {"result": 2},
    ]


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


@ERAS
async def test_the_context_has_the_acp_session(mode):
    async with (
        notes_in_session() as situation,
        mcp_client(situation.entry, mode=mode) as mcp,
    ):
        result = await mcp.call_tool("where", {})

    assert text_of(result) == "session-1 in /work, new"
    assert situation.client.transcript.text() == "looking"


async def test_the_session_is_the_one_that_handlers_of_events_get():
    @attrs.define(eq=False)
    class WithEvents(Notes):
        opened: list[Any] = attrs.field(factory=list)

        @on_session
        async def remember(self, session):
            self.opened.append(session)

        @tool
        async def same(self, context: Context) -> bool:
            return context.session is self.opened[0]

    async with (
        notes_in_session(notes=WithEvents()) as situation,
        mcp_client(situation.entry, mode="auto") as mcp,
    ):
        assert (await mcp.call_tool("same", {})).structured_content == {"result": True}


async def test_the_session_has_no_id_before_its_set_up_is_answered():
    @attrs.define(eq=False)
    class Early(Proxy):
        @tool
        async def early(self, context: Context) -> str:
            assert (context.session.id, context.session.cwd) == ("", "/work")
            await context.session.say("too early")
            return ""

    agent = FakeAgent(capabilities={"mcpCapabilities": {"acp": True}})
    results: list[Any] = []

    async def new_session(params: Any) -> Any:
        call = {"name": "early", "arguments": {}, "_meta": MODERN}
        asked = {"requestId": "1", "method": "tools/call", "params": call}
        server = params["mcpServers"][0]["serverId"]
        results.append(await agent.endpoint.request("mcp/message", {"serverId": server, **asked}))
        return {"sessionId": "session-1"}

    agent.handlers["session/new"] = new_session
    async with open_chain(Early(), agent, bridged=False) as client:
        await client.initialize()
        await client.new_session("/work")

    [result] = results
    assert result["result"]["isError"]
    assert client.transcript.updates() == []


@ERAS
async def test_the_context_of_the_sdk_works_as_an_annotation_too(mode):
    async with (
        notes_in_session() as situation,
        mcp_client(situation.entry, mode=mode) as mcp,
    ):
        said = text_of(await mcp.call_tool("old_context", {}))
        tools = {each.name: each for each in (await mcp.list_tools()).tools}

    assert said == {"legacy": "2025-11-25", "auto": "2026-07-28"}[mode]
    assert tools["old_context"].input_schema["properties"] == {}
    assert list(tools["ask"].input_schema["properties"]) == ["question"]


@ERAS
async def test_the_text_of_an_exception_stays_in_the_log(mode, capfd):
    log.configure("error")
    async with (
        notes_in_session() as situation,
        mcp_client(situation.entry, mode=mode) as mcp,
    ):
        result = await mcp.call_tool("crash", {})

    assert result.is_error
    assert text_of(result) == "Error executing tool crash: Internal error"
    logged = capfd.readouterr().err
    assert "tool failed" in logged
    assert "plugin=Notes" in logged
    assert "test_mcp_context.py:" in logged
    assert "the database password is secret" in logged


@ERAS
async def test_resources_are_listed_and_read(mode):
    _, answer = answering(accept("x"))
    async with (
        notes_in_session() as situation,
        mcp_client(situation.entry, mode=mode, elicitation_callback=answer) as mcp,
    ):
        fixed = [(r.name, str(r.uri), r.mime_type) for r in (await mcp.list_resources()).resources]
        listed = (await mcp.list_resource_templates()).resource_templates
        [index] = (await mcp.read_resource("notes://index")).contents
        [note] = (await mcp.read_resource("notes://a")).contents
        [image] = (await mcp.read_resource("image://cat?size=big")).contents
        with pytest.raises(MCPError) as missing:
            await mcp.read_resource("notes://b")

    assert fixed == [("index", "notes://index", "application/json")]
    assert [(t.name, t.uri_template, t.title, t.description) for t in listed] == [
        ("note", "notes://{name}", "A note", "One note."),
        ("image", "image://{name}{?size}", None, ""),
    ]
    assert (index.text, index.mime_type) == ('[\n  "a"\n]', "application/json")
    assert situation.notes.seen == ["/work"]
    assert note.text == "first: accept"
    assert (image.blob, image.mime_type) == ("Y2F0IGJpZw==", "image/png")
    assert (missing.value.code, missing.value.message) == (-32602, "no note 'b'")


@ERAS
async def test_prompts_are_listed_and_rendered(mode):
    _, answer = answering(accept("tea"))
    async with (
        notes_in_session() as situation,
        mcp_client(situation.entry, mode=mode, elicitation_callback=answer) as mcp,
    ):
        prompts = {each.name: each for each in (await mcp.list_prompts()).prompts}
        made = (await mcp.get_prompt("summarize", {"topic": "tea", "words": "7"})).messages
        asked = (await mcp.get_prompt("ask-first", {})).messages
        with pytest.raises(MCPError) as broken:
            await mcp.get_prompt("broken", {})

    assert list(prompts) == ["summarize", "ask-first", "broken"]
    summarize = prompts["summarize"]
    assert (summarize.title, summarize.description) == ("Summarize notes", "Summarize the notes.")
    assert [(a.name, a.description, a.required) for a in summarize.arguments] == [
        ("topic", "What about.", True),
        ("words", None, False),
    ]
    assert [(m.role, m.content.text) for m in made] == [
        ("user", "About tea, in 7 words, at /work."),
        ("assistant", "Sure."),
    ]
    assert [m.content.text for m in asked] == ["tea"]
    assert (broken.value.code, broken.value.message) == (-32050, "no notes yet")


async def test_a_method_that_the_sdk_cannot_offer_is_named_in_the_answer_and_the_log(capfd):
    class Strange(Proxy):
        @tool
        async def pay(self, amount: trio.Event) -> str:
            return ""

    log.configure("error")
    problem = "Strange.pay: the MCP SDK cannot offer it: Cannot generate a JsonSchema"
    async with notes_in_session(notes=Strange()) as situation:
        with pytest.RaisesGroup(pytest.RaisesExc(MCPError, match=problem), flatten_subgroups=True):
            async with mcp_client(situation.entry, mode="legacy"):
                pass

    assert problem in capfd.readouterr().err
