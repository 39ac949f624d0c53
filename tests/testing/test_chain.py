"""`open_chain`: failures of plugins in a strict chain, the MCP bridge, announced capabilities."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from conductor.chainfile.model import ComponentSpec
from conductor.errors import RequestError
from conductor.proxy import (
    Proxy,
    on,
    on_session,
    on_session_end,
    on_text,
    tool,
)
from conductor.testing import FakeAgent, open_chain

OWN_PROCESS = ComponentSpec(
    name="agent",
    run=(sys.executable, "-m", "conductor.testing.agent"),
    on_failure="end_chain",
)


class Mistake(Exception):
    pass


async def take_a_turn(client):
    await client.initialize()
    await client.prompt(await client.new_session("/project"), "hi")


class RequestHandler(Proxy):
    @on("session/prompt")
    async def handle(self, params, forward):
        raise Mistake


class NotificationHandler(Proxy):
    @on("session/update")
    async def handle(self, params, forward):
        raise Mistake


class TextEvent(Proxy):
    @on_text
    async def handle(self, session, text):
        raise Mistake


class SessionEvent(Proxy):
    @on_session
    async def handle(self, session):
        raise Mistake


class SessionEndEvent(Proxy):
    """At the end of the chain: after the block of the test."""

    @on_session_end
    async def handle(self, session):
        raise Mistake


class AfterAnswer(Proxy):
    @on("session/new")
    async def handle(self, params, forward):
        self.after_answer(self.later)
        return await forward()

    async def later(self):
        raise Mistake


class Task(Proxy):
    @on("session/prompt")
    async def handle(self, params, forward):
        self.start_soon(self.later)
        return await forward()

    async def later(self):
        raise Mistake


class Lifespan(Proxy):
    @asynccontextmanager
    async def lifespan(self):
        raise Mistake
        yield


class Passing(RequestHandler):
    on_error = "pass"


FAILING = [
    *(RequestHandler, NotificationHandler, TextEvent, SessionEvent, SessionEndEvent),
    *(AfterAnswer, Task, Lifespan, Passing),
]


@pytest.mark.parametrize("failing", FAILING)
async def test_a_strict_chain_raises_what_a_plugin_raises(acp_chain, failing):
    with pytest.raises(Mistake) as caught:
        async with acp_chain(failing(), strict=True) as client:
            await take_a_turn(client)

    names = [entry.name for entry in caught.traceback]
    assert names[-1] in ("handle", "later", "lifespan")


async def test_the_block_of_a_strict_chain_is_cancelled(acp_chain, virtual_clock):
    """The dropped update would be waited for forever."""

    async def wait_for_text(client):
        await take_a_turn(client)
        await client.transcript.wait("session/update agent_message_chunk")

    with pytest.raises(Mistake), trio.move_on_after(60) as too_long:
        async with acp_chain(NotificationHandler(), strict=True) as client:
            await wait_for_text(client)

    assert not too_long.cancel_called


async def test_the_first_failure_of_a_strict_chain_is_raised_and_notes_tell_the_others(acp_chain):
    class Twice(SessionEndEvent):
        @on_session
        async def fail_first(self, session):
            raise ValueError("the first")

    with pytest.raises(ValueError, match="the first") as caught:
        async with acp_chain(Twice(), strict=True) as client:
            await take_a_turn(client)

    [note] = caught.value.__notes__
    assert note.startswith("Raised later: Mistake (")
    assert "test_chain.py:" in note


async def test_a_request_error_is_an_answer_in_a_strict_chain(acp_chain):
    class Refusing(Proxy):
        @on("session/prompt")
        async def refuse(self, params, forward):
            raise RequestError(-32000, "not today")

    async with acp_chain(Refusing(), strict=True) as client:
        with pytest.raises(RequestError, match="not today"):
            await take_a_turn(client)


async def test_a_chain_that_is_not_strict_goes_on(acp_chain):
    async with acp_chain(SessionEvent()) as client:
        await take_a_turn(client)

        assert client.transcript.text().endswith(
            " failed in on_session: Mistake (test_chain.py:61)\n\nYou said: hi"
        )


async def test_an_agent_after_a_chain_file_takes_the_place_of_its_agent(acp_chain, tmp_path):
    file = tmp_path / "chain.yaml"
    file.write_text(
        "version: 1\nproxies: [{use: context, with: {text: hello}}]\nagent: {run: [/absent]}\n"
    )
    agent = FakeAgent(turns=[["hi"]])

    async with acp_chain(file, agent, strict=True) as client:
        await take_a_turn(client)

    (prompt,) = agent.transcript.of("session/prompt", "request")
    assert "hello" in prompt.params["prompt"][0]["text"]


# -- the bridge ------------------------------------------------------------------------------------


@attrs.define
class Clock(Proxy):
    """The time, as a tool."""

    now: str = "noon"

    @tool
    async def time(self) -> str:
        """The time."""
        return self.now


async def called(client) -> str:
    await client.initialize()
    await client.prompt(await client.new_session("/"), "call Clock time")
    return client.transcript.text()


@pytest.mark.parametrize("agent", [(), (OWN_PROCESS,)], ids=["in process", "own process"])
async def test_with_the_bridge_an_agent_without_mcp_over_acp_calls_a_tool(acp_chain, agent):
    with trio.fail_after(30):
        async with acp_chain(Clock(), *agent, bridge=True, strict=True) as client:
            assert await called(client) == "noon\n"


async def test_without_the_bridge_the_agent_gets_the_declaration(acp_chain):
    agent = FakeAgent()
    async with acp_chain(Clock(), agent) as client:
        await client.initialize()
        await client.new_session("/")

    [asked] = agent.transcript.of("session/new", "request")
    assert [server["type"] for server in asked.params["mcpServers"]] == ["acp"]


async def test_a_chain_of_proxies_has_no_bridge(acp_chain):
    async with acp_chain(Proxy(), mode="proxy", bridge=True) as client:
        assert [each.name for each in client.attached.chain.components] == []


@pytest.mark.parametrize(
    ("options", "announced"), [({}, {"acp": True}), ({"bridged": False}, None)]
)
async def test_the_agent_is_announced_to_support_mcp_over_acp_unless_bridged_is_false(
    options, announced
):
    async with open_chain(FakeAgent(capabilities={}), **options) as client:
        result = await client.initialize()

    assert result["agentCapabilities"].get("mcpCapabilities") == announced
