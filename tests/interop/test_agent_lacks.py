"""Agents of the official SDKs with every adapter for what they lack, in one chain."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from conductor.chainfile import load
from conductor.client.embedding import attach_file
from conductor.testing import FakeClient

Command = list[str]
ADAPTERS = ("queue", "journal", "system_prompt", "additional_directories", "prompt_content")
AUDIO = {"type": "audio", "data": base64.b64encode(b"RIFF").decode(), "mimeType": "audio/wav"}


def chain_file(directory: Path, agent: Command, adapters: tuple[str, ...] = ADAPTERS) -> Any:
    adapt: dict[str, Any] = dict.fromkeys(adapters, "auto")
    if "journal" in adapt:
        adapt["journal"] = {"mode": "auto", "with": {"directory": str(directory / "journal")}}
    file = directory / "chain.yaml"
    processes = {"run": agent, "session_processes": 4}
    file.write_text(json.dumps({"version": 1, "agent": processes, "adapt": adapt}))
    return load(str(file))


def texts(client: FakeClient, session: str) -> list[str]:
    contents = [each.get("content") for each in client.transcript.updates(session)]
    return [each["text"] for each in contents if isinstance(each, dict)]


@pytest.mark.parametrize("name", ["ts_agent", "py_agent"])
async def test_everything_that_the_agent_lacks_is_put_in(
    name: str, peer: Callable[..., Command], tmp_path: Path
) -> None:
    setup = {"cwd": str(tmp_path), "mcpServers": []}
    instructions = {"mode": "append", "content": [{"type": "text", "text": "Be brief."}]}
    more = {"additionalDirectories": ["/lib"], "systemPrompt": instructions}
    with trio.fail_after(60):
        async with attach_file(FakeClient, chain_file(tmp_path, peer(name))) as attached:
            client = attached.client
            capabilities = (await client.initialize())["agentCapabilities"]
            opened = [await client.request("session/new", setup | each) for each in (more, {})]
            first, second = (each["sessionId"] for each in opened)
            prompt = [{"type": "text", "text": "hello"}, AUDIO]
            await client.prompt(first, prompt)
            await client.prompt(second, "permission")
            client.start_soon(client.prompt, second, "wait")
            client.start_soon(client.prompt, second, "hello")
            await client.transcript.wait(lambda heard: "1 waits until" in str(heard.params))
            client.notify("session/cancel", {"sessionId": second})
            listed = (await client.request("session/list", {}))["sessions"]
            await client.request("session/close", {"sessionId": second})
            (asked,) = client.transcript.of("session/request_permission", "request")

    assert capabilities["loadSession"] is True
    session = {"additionalDirectories", "systemPrompt", "close", "delete", "fork", "list", "resume"}
    assert session <= capabilities["sessionCapabilities"].keys()
    content = capabilities["promptCapabilities"]
    assert [content[each] for each in ("image", "audio", "embeddedContext")] == [True] * 3
    said = texts(client, first)[0]
    assert said.startswith("you said: ")
    assert "- /lib\n" in said
    assert "Be brief." in said
    assert second.startswith(f"{first}-")
    assert asked.params["sessionId"] == second
    assert {each["sessionId"]: each["title"] for each in listed} == {
        first: "hello",
        second: "permission",
    }
    commands = [
        each.session
        for each in client.transcript.of("session/update")
        if each.params["update"]["sessionUpdate"] == "available_commands_update"
    ]
    assert {first, second} <= {*commands}
    assert not list((tmp_path / "journal").rglob("*.wav"))
