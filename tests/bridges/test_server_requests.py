"""What servers ask of the agent's MCP client, through a real shim: sampling, roots, withdrawal."""

from __future__ import annotations

import pytest
import trio
from mcp.server import Server
from mcp.types import (
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    ListToolsResult,
    Root,
    SamplingMessage,
    TextContent,
    Tool,
)
from support.bridge_harness import (
    initialize,
    mcp_client,
    receive,
    receive_all,
    request,
    send,
    shim,
    situation,
)
from support.mcp_providers import BINDINGS, SERVED, is_served, toolbox
from support.raw_json import dumps

from conductor.errors import RequestError

# mode of the client, era of the server, how the server asks
PAIRS = [
    ("legacy", "old", "old"),
    ("auto", "old", "old"),
    ("legacy", "new", "new"),
    ("2026-07-28", "new", "new"),
]
HI = [SamplingMessage(role="user", content=TextContent(type="text", text="hi"))]


def asking(way):
    """A server whose tool wants to know the roots, and what the model says to them."""

    async def old(ctx, params):
        roots = await ctx.session.list_roots()
        said = await ctx.session.create_message(HI, max_tokens=5)
        return told(roots, said)

    async def new(ctx, params):
        given = params.input_responses
        if given is None:
            sample = CreateMessageRequest(
                params=CreateMessageRequestParams(messages=HI, max_tokens=5)
            )
            asked = {"roots": ListRootsRequest(), "sample": sample}
            return InputRequiredResult(input_requests=asked)
        return told(given["roots"], given["sample"])

    async def list_tools(ctx, params):
        return ListToolsResult(tools=[Tool(name="look", input_schema={"type": "object"})])

    return lambda: Server(
        "asking", on_list_tools=list_tools, on_call_tool=old if way == "old" else new
    )


def told(roots, said):
    text = f"{roots.roots[0].name}: {said.content.text}"
    return CallToolResult(content=[TextContent(type="text", text=text)])


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
@pytest.mark.parametrize(
    ("binding", "mode", "era", "way"),
    [(each, *pair) for each in BINDINGS for pair in PAIRS if is_served(each, pair[1])],
)
async def test_a_tool_samples_and_lists_roots(binding, mode, era, way):
    sampled = []

    async def sample(context, params):
        sampled.append((params.messages[0].content.text, params.max_tokens))
        content = TextContent(type="text", text="hello")
        return CreateMessageResult(role="assistant", model="test", content=content)

    async def list_roots(context):
        return ListRootsResult(roots=[Root(uri="file:///work", name="work")])

    async with situation(binding, asking(way), era=era) as on:
        [entry] = await on.declare()
        options = {"sampling_callback": sample, "list_roots_callback": list_roots}
        async with mcp_client(entry, mode=mode, **options) as client:
            with trio.fail_after(10):
                result = await client.call_tool("look", {})

    assert result.content[0].text == "work: hello"
    assert sampled == [("hi", 5)]


@pytest.mark.parametrize(("binding", "era"), SERVED)
async def test_the_revision_of_codex_and_gemini_is_served(binding, era):
    async with situation(binding, toolbox, era=era) as on:
        [entry] = await on.declare()
        async with shim(entry) as process:
            hello = await initialize(process, "2025-06-18")
            tools = await request(process, 1, "tools/list")
            call = {"name": "add", "arguments": {"a": 2, "b": 3}}
            result = await request(process, 2, "tools/call", call)

    assert hello["result"]["protocolVersion"] == "2025-06-18"
    assert [tool["name"] for tool in tools["result"]["tools"]] == ["add", "count", "echo"]
    assert result["result"]["structuredContent"] == {"result": 5}
    assert not {"resultType", "ttlMs", "cacheScope"} & tools["result"].keys()
    assert "resultType" not in result["result"]


# -- a question that is withdrawn ------------------------------------------------------------------

QUESTION = {"connectionId": "c", "method": "elicitation/create", "params": {"message": "Really?"}}


def connecting(on):
    """A server that only says hello; the test says the rest."""

    def message(params):
        if params["method"] == "server/discover":
            raise RequestError(-32601, "Method not found")
        if params["method"] == "initialize":
            capabilities = {"capabilities": {}, "serverInfo": {"name": "old", "version": "1"}}
            return {"protocolVersion": "2025-11-25", **capabilities}
        return {}

    on.client.handlers["mcp/connect"] = lambda params: {"connectionId": "c"}
    on.client.handlers["mcp/disconnect"] = lambda params: {}
    on.client.handlers["mcp/message"] = message


async def test_a_server_withdraws_its_question():
    """`$/cancel_request` on the chain is `notifications/cancelled` at the shim, once, and the
    server is answered at once: a client that was told so answers nothing more."""
    async with situation() as on:
        connecting(on)
        [entry] = await on.declare()
        async with shim(entry) as process:
            await initialize(process)
            withdraw = await ask(on)
            question = await receive(process)
            withdraw.cancel()
            gone = await receive(process)
            settled = await answers_to(on, "mcp/message")

            late = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}
            await process.stdin.send_all(dumps(late) + b"\n")  # they crossed
            pong = await request(process, 7, "ping")

    assert (question["method"], question["params"]) == (QUESTION["method"], QUESTION["params"])
    assert gone == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": question["id"]},
    }
    assert settled == [-32800]
    assert await answers_to(on, "mcp/message") == [-32800]
    assert pong["result"] == {}


async def test_a_question_that_a_new_client_was_handed_is_withdrawn_without_a_second_answer():
    """The modern client got the question as the result of its call; its retry with an obsolete
    input does not reach the server."""
    called = trio.Event()

    async with situation() as on:
        connecting(on)
        answer_hello = on.client.handlers["mcp/message"]

        async def message(params):
            if params["method"] != "tools/call":
                return answer_hello(params)
            called.set()
            await gone.wait()
            return {"content": []}

        gone = trio.Event()
        on.client.handlers["mcp/message"] = message
        [entry] = await on.declare()
        async with shim(entry) as process:
            await send(process, 1, "tools/call", {"name": "x", "arguments": {}, "_meta": META})
            await called.wait()
            withdraw = await ask(on)
            handed = (await receive(process))["result"]
            withdraw.cancel()
            settled = await answers_to(on, "mcp/message")
            gone.set()
            again = {
                "name": "x",
                "arguments": {},
                "_meta": META,
                "requestState": handed["requestState"],
                "inputResponses": {key: {"action": "accept"} for key in handed["inputRequests"]},
            }
            result = await request(process, 2, "tools/call", again)

    assert handed["resultType"] == "input_required"
    assert settled == [-32800]
    assert await answers_to(on, "mcp/message") == [-32800]
    assert result["result"]["content"] == []
    assert result["result"]["resultType"] == "complete"


async def test_a_tool_that_gives_up_its_question_withdraws_it():
    """The SDK's own way: a scope around the question, `notifications/cancelled` from the server."""
    scope = trio.CancelScope()

    async def call_tool(ctx, params):
        with scope:
            await ctx.session.elicit_form("Really?", {"type": "object", "properties": {}})
        return CallToolResult(content=[TextContent(type="text", text="gave up")])

    async def list_tools(ctx, params):
        return ListToolsResult(tools=[Tool(name="confirm", input_schema={"type": "object"})])

    def make():
        return Server("asking", on_list_tools=list_tools, on_call_tool=call_tool)

    async with situation(make=make, era="old") as on:
        [entry] = await on.declare()
        async with shim(entry) as process:
            await initialize(process, capabilities={"elicitation": {"form": {}}})
            await send(process, 2, "tools/call", {"name": "confirm", "arguments": {}})
            question = await receive(process)
            scope.cancel()
            gone, result = await receive_all(process, 2)

    assert question["method"] == "elicitation/create"
    assert gone["method"] == "notifications/cancelled"
    assert gone["params"]["requestId"] == question["id"]
    assert result["result"]["content"] == [{"type": "text", "text": "gave up"}]


META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}


async def ask(on):
    """Ask the consumer from the server's side; returns what withdraws the question."""
    scope = trio.CancelScope()

    async def run():
        with scope:
            await on.client.request("mcp/message", QUESTION)

    on.client.start_soon(run)
    return scope


async def answers_to(on, method):
    """What the server got as answers to its questions; there has to be one."""

    def record_update():
        return [h for h in on.client.transcript if h.kind == "answer" and h.method == method]

    await on.until(record_update)
    return [one.result if one.error is None else one.error["code"] for one in record_update()]
