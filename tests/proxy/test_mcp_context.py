"""`Context` in tools, resources and prompts, with a real MCP client behind the bridge."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from mcp.shared.exceptions import MCPError
from support.bridge_harness import mcp_client
from support.context_notes import ERAS, MODERN, Notes, accept, answering, notes_in_session, text_of

from conductor import log
from conductor.proxy import (
    Context,
    Proxy,
    on_session,
    tool,
)
from conductor.testing import FakeAgent, open_chain


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
    assert "handler failed" in logged
    assert "plugin=Notes" in logged
    assert "context_notes.py:" in logged
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
