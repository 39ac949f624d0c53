"""Third-party coding agents from npm, with a scripted model on loopback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from hypercorn.config import Config
from hypercorn.trio import serve

from conductor.client.acp_client import Client
from conductor.transport.child_process import start_child
from support.model_dialects import (
    anthropic_answer,
    gemini_answer,
    in_chat_form,
    responses_answer,
)

PLACE = Path(__file__).parent.parent.parent / ".cache" / "npm"


def from_npm(package: str, name: str, *, variable: str) -> str:
    """The path of a program of a package, which is installed where it is not; skips the test
    unless the environment has `variable`."""
    if not os.environ.get(variable):
        pytest.skip(f"{variable} is not set: it would fetch {package} from npm")
    if not shutil.which("npm"):
        pytest.skip("npm is not there")
    program = PLACE / "node_modules" / ".bin" / name
    if not program.exists():
        argv = ["npm", "install", "--prefix", str(PLACE), "--no-audit", "--no-fund", package]
        subprocess.run(argv, check=True, timeout=300, stdout=subprocess.DEVNULL)
    return str(program)


class Model(ABC):
    """A server of one model, with the APIs of OpenAI (two), Anthropic and Gemini."""

    @abstractmethod
    async def answer(self, asked: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """The model's message, and why it ends there (`stop`, `tool_calls`)."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
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
        path, asked = scope["path"], json.loads(body or b"{}")
        message, reason = await self.answer(in_chat_form(path, asked))
        if path.endswith("/messages"):
            kind, text = anthropic_answer(message)
        elif path.endswith("/responses"):
            kind, text = responses_answer(message)
        elif "enerateContent" in path:
            kind, text = gemini_answer(message, is_streamed="stream" in path)
        else:
            kind, text = (_streamed if asked.get("stream") else _whole)(message, reason)
        headers = [(b"content-type", kind)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text})


_HEAD = {"id": "1", "created": 1, "model": "test"}
_USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


def _whole(message: Mapping[str, Any], reason: str) -> tuple[bytes, bytes]:
    choice = {"index": 0, "message": message, "finish_reason": reason}
    whole = {**_HEAD, "object": "chat.completion", "choices": [choice], "usage": _USAGE}
    return b"application/json", json.dumps(whole).encode()


def _streamed(message: Mapping[str, Any], reason: str) -> tuple[bytes, bytes]:
    parts = [
        {"index": 0, "delta": message, "finish_reason": None},
        {"index": 0, "delta": {}, "finish_reason": reason},
    ]
    chunks: list[dict[str, Any]] = [
        {**_HEAD, "object": "chat.completion.chunk", "choices": [part]} for part in parts
    ]
    chunks[-1]["usage"] = _USAGE
    lines = [b"data: " + json.dumps(chunk).encode() for chunk in chunks]
    return b"text/event-stream", b"\n\n".join([*lines, b"data: [DONE]", b""])


@asynccontextmanager
async def model_url(model: Model) -> AsyncIterator[str]:
    """Serve a model on loopback; yields the URL at which agents reach it."""
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.accesslog = config.errorlog = None
    config.graceful_timeout = 0.1
    async with trio.open_nursery() as nursery:
        [origin] = await nursery.start(serve, model, config)
        yield f"{origin}/v1"
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def conversation(
    command: str,
    model: Model,
    home: Path,
    environment: Callable[[str], Mapping[str, str]],
    handlers: Mapping[str, Any],
) -> AsyncIterator[Client]:
    """A client of a chain with this agent, before its initialization. `environment`: what tells the
    agent of its model, whose URL it is given."""
    async with model_url(model) as url:
        env = {"PATH": os.environ["PATH"], "HOME": str(home), **environment(url)}
        child = start_child(
            [sys.executable, "-m", "conductor", "agent", command], env=env, cwd=None
        )
        client = Client(child.transport, dict(handlers))
        try:
            with trio.fail_after(90):
                async with client.open():
                    yield client
                    client.close()
                    await child.wait()
        finally:
            child.signal(9)
            child.close()
