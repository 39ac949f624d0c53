"""`Notes`, a proxy that uses everything that a tool's `Context` has, in a session with an agent.

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
from mcp.types import ElicitResult, TextContent
from pydantic import BaseModel

from bridges.bridge import McpBridge
from conductor.proxy import (
    Context,
    Proxy,
    RequestError,
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
