"""A coding agent of somebody else's takes a server over ACP: qwen-code, and a model of our own.

Opt-in, since it fetches a package from npm: `ACP_TEST_QWEN=1`. The model is a few lines of an
OpenAI-compatible server on loopback, which calls the one tool and repeats what it said.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
import trio
from bridges_providers import Provider, declaration, toolbox
from hypercorn.config import Config
from hypercorn.trio import serve

from conductor.client import Client
from conductor.transport.process import spawn

PACKAGE = "@qwen-code/qwen-code"
PLACE = Path(__file__).parent.parent.parent / ".cache" / "npm"


@pytest.fixture(scope="module")
def qwen():
    """Its command; it is installed where it is not."""
    if not os.environ.get("ACP_TEST_QWEN"):
        pytest.skip("ACP_TEST_QWEN is not set: it would fetch qwen-code from npm")
    if not shutil.which("npm"):
        pytest.skip("npm is not there")
    program = PLACE / "node_modules" / ".bin" / "qwen"
    if not program.exists():
        argv = ["npm", "install", "--prefix", str(PLACE), "--no-audit", "--no-fund", PACKAGE]
        subprocess.run(argv, check=True, timeout=300, stdout=subprocess.DEVNULL)
    return [str(program), "--acp"]


ADD = "mcp__tools__add"


@attrs.define(eq=False)
class Model:
    """What a model server says: a call of `add`, and then the result of it."""

    called: bool = False
    heard: list[str] = attrs.field(factory=list)
    """Results of the call."""

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = b""
        while True:
            event = await receive()
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        answer = self.answer(json.loads(body or b"{}"))
        headers = [(b"content-type", answer[0])]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer[1]})

    def answer(self, asked):
        tools = [one["function"]["name"] for one in asked.get("tools", ())]
        results = [m["content"] for m in asked.get("messages", ()) if m["role"] == "tool"]
        message = {"role": "assistant", "content": "nothing to do"}
        reason = "stop"
        if ADD in tools:
            call = {"name": ADD, "arguments": '{"a": 20, "b": 22}'}
        elif "tool_search" in tools:  # qwen-code shows MCP tools to a model that looks for them
            call = {"name": "tool_search", "arguments": f'{{"query": "select:{ADD}"}}'}
        else:
            call = None
        if self.called:
            self.heard.append(json.dumps(results[-1]))
            message["content"] = f"the tool said {results[-1]}"
        elif call is not None:
            self.called = call["name"] == ADD
            message = {"role": "assistant", "content": None}
            message["tool_calls"] = [
                {"index": 0, "id": f"call-{len(results)}", "type": "function", "function": call}
            ]
            reason = "tool_calls"
        head = {"id": "1", "created": 1, "model": "test"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if not asked.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
            return b"application/json", json.dumps(whole).encode()
        parts = [
            {"index": 0, "delta": message, "finish_reason": None},
            {"index": 0, "delta": {}, "finish_reason": reason},
        ]
        chunks = [{**head, "object": "chat.completion.chunk", "choices": [p]} for p in parts]
        chunks[-1]["usage"] = usage
        lines = [b"data: " + json.dumps(chunk).encode() for chunk in chunks]
        return b"text/event-stream", b"\n\n".join([*lines, b"data: [DONE]", b""])


async def test_qwen_code_calls_a_tool_of_the_client(qwen, nursery, tmp_path):
    model = Model()
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.accesslog = config.errorlog = None
    config.graceful_timeout = 0.1
    [origin] = await nursery.start(serve, model, config)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": f"{origin}/v1",
        "OPENAI_MODEL": "test",
        "NO_COLOR": "1",
    }
    settings = tmp_path / ".qwen" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"security": {"auth": {"selectedType": "openai"}}}))
    work = tmp_path / "work"
    work.mkdir()
    argv = [sys.executable, "-m", "conductor", "agent", " ".join(qwen)]
    child = spawn(argv, env=env, cwd=None)
    said = []

    def permit(params):
        option = next(one for one in params["options"] if one["kind"].startswith("allow"))
        return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}

    handlers = {"session/update": said.append, "session/request_permission": permit}
    client = Client(child.transport, handlers)
    try:
        with trio.fail_after(90):
            async with client.open():
                provider = Provider(client, "serverId", toolbox).mount()
                await client.initialize()
                session = await client.new_session(str(work), [declaration("serverId")])
                stop = await client.prompt(session, "Add 20 and 22.")
                client.close()
                await child.wait()
    finally:
        child.signal(9)
        child.close()
        nursery.cancel_scope.cancel()

    assert stop["stopReason"] == "end_turn"
    assert "42" in model.heard[0]
    assert "tools/call" in provider.methods()
    assert "42" in json.dumps(said)
