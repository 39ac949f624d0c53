"""MCP's own conformance tests, pointed at the HTTP bridge.

Opt-in, since it fetches a package from npm: `ACP_TEST_CONFORMANCE=1`. The tests cannot show a
token, so something in front of the bridge does it for them. What they find is compared with what
they find at the SDK's server without a bridge: the bridge must not be the worse of the two.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.types import (
    AudioContent,
    Completion,
    EmbeddedResource,
    ImageContent,
    SamplingMessage,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel
from support.bridge_harness import situation

pytestmark = pytest.mark.external

PACKAGE = "@modelcontextprotocol/conformance@0.1.13"
"""The newest that runs on Node 20."""
PLACE = Path(__file__).parent.parent.parent / ".cache" / "conformance"
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()


@pytest.fixture(scope="module")
def conformance():
    if not os.environ.get("ACP_TEST_CONFORMANCE"):
        pytest.skip("ACP_TEST_CONFORMANCE is not set: it would fetch the tests from npm")
    if not shutil.which("npm"):
        pytest.skip("npm is not there")
    program = PLACE / "node_modules" / ".bin" / "conformance"
    if not program.exists():
        argv = ["npm", "install", "--prefix", str(PLACE), "--no-audit", "--no-fund", PACKAGE]
        subprocess.run(argv, check=True, timeout=300, stdout=subprocess.DEVNULL)
    return program


class Name(BaseModel):
    username: str
    email: str


def everything():
    """What the tests expect a server to have."""
    server = MCPServer("everything")

    @server.tool(structured_output=False, description="For a test.")
    async def test_simple_text() -> str:
        return "This is a simple text response for testing."

    @server.tool(structured_output=False, description="For a test.")
    async def test_image_content() -> Image:
        return Image(data=base64.b64decode(PIXEL), format="png")

    @server.tool(structured_output=False, description="For a test.")
    async def test_audio_content() -> AudioContent:
        return AudioContent(type="audio", data=PIXEL, mime_type="audio/wav")

    @server.tool(structured_output=False, description="For a test.")
    async def test_embedded_resource() -> EmbeddedResource:
        return embedded("test://embedded-resource")

    @server.tool(structured_output=False, description="For a test.")
    async def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
        return [
            TextContent(type="text", text="Multiple content types test:"),
            ImageContent(type="image", data=PIXEL, mime_type="image/png"),
            embedded("test://mixed-content-resource"),
        ]

    @server.tool(structured_output=False, description="For a test.")
    async def test_error_handling() -> str:
        raise ValueError("This tool intentionally returns an error for testing")

    @server.tool(structured_output=False, description="For a test.")
    async def test_tool_with_logging(ctx: Context) -> str:
        for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await ctx.info(text)
        return "done"

    @server.tool(structured_output=False, description="For a test.")
    async def test_tool_with_progress(ctx: Context) -> str:
        for number in (0, 50, 100):
            await ctx.report_progress(number, 100, f"Completed step {number} of 100")
        return "done"

    @server.tool(structured_output=False, description="For a test.")
    async def test_sampling(prompt: str, ctx: Context) -> str:
        content = TextContent(type="text", text=prompt)
        message = SamplingMessage(role="user", content=content)
        said = await ctx.session.create_message([message], max_tokens=100)
        return f"LLM response: {said.content.text}"

    @server.tool(structured_output=False, description="For a test.")
    async def test_elicitation(message: str, ctx: Context) -> str:
        said = await ctx.elicit(message, schema=Name)
        return f"User response: {said.action}"

    @server.completion()
    async def complete(ref, argument, context) -> Completion:
        return Completion(values=["paris", "park"], total=2, has_more=False)

    @server.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        return base64.b64decode(PIXEL)

    @server.resource("test://template/{id}/data", mime_type="application/json")
    def template(id: str) -> str:
        return f'{{"id": "{id}", "templateTest": true, "data": "Data for ID: {id}"}}'

    @server.prompt(description="For a test.")
    def test_simple_prompt() -> str:
        return "This is a simple prompt for testing."

    @server.prompt(description="For a test.")
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @server.prompt(description="For a test.")
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:
        return [UserMessage(embedded(resourceUri)), UserMessage("Process it.")]

    @server.prompt(description="For a test.")
    def test_prompt_with_image() -> list[UserMessage]:
        image = ImageContent(type="image", data=PIXEL, mime_type="image/png")
        return [UserMessage(image), UserMessage("Look at it.")]

    return server


def embedded(uri):
    text = "This is an embedded resource content."
    contents = TextResourceContents(uri=uri, mime_type="text/plain", text=text)
    return EmbeddedResource(type="resource", resource=contents)


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
async def test_the_bridge_conforms_as_its_server_does(conformance, nursery):
    app = everything().streamable_http_app()
    direct = await run(conformance, f"{await at(nursery, app)}/mcp")
    async with situation(
        make=everything, capabilities={"mcpCapabilities": {"http": True}}, mode="http"
    ) as on:
        [entry] = await on.declare()
        origin = await at(nursery, front(on, entry))
        bridged = await run(
            conformance, origin + entry["url"].removeprefix(shim_listener(on).origin)
        )
    nursery.cancel_scope.cancel()

    assert sum(direct.values()) >= 24
    assert {name for name, ok in direct.items() if ok and not bridged[name]} == set()


def shim_listener(on):
    return on.bridge._rewriter.http


def front(on, entry):
    """Adds the token to each request; hosts and origins are mapped."""
    [authorization] = [one["value"] for one in entry["headers"]]
    ours = shim_listener(on).origin.removeprefix("http://").encode()

    async def app(scope, receive, send):
        if scope["type"] == "http":
            _, port = scope["server"]
            theirs = f"{port}".encode()
            headers = [
                (name, value.replace(theirs, ours.rpartition(b":")[2]))
                for name, value in scope["headers"]
            ]
            scope = {**scope, "headers": [*headers, (b"authorization", authorization.encode())]}
        await shim_listener(on)(scope, receive, send)

    return app


async def at(nursery, app):
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.accesslog = config.errorlog = None
    config.graceful_timeout = 0.1
    [origin] = await nursery.start(serve, app, config)
    return origin


async def run(program, url):
    """Scenarios, and whether each passed."""
    with trio.fail_after(120):
        done = await trio.run_process(
            [str(program), "server", "--url", url], capture_stdout=True, check=False
        )
    text = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout.decode())
    print(text[-6000:])
    return {m[2]: m[1] == "✓" for m in re.finditer(r"^\s*([✓✗]) ([\w-]+):", text, re.MULTILINE)}
