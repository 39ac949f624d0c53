from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import trio

from conductor import log
from conductor.proxy import RequestError
from conductor.testing import FakeAgent
from proxies.log_messages import LogMessages


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_every_message_is_a_line_with_its_size_and_time(chain, tmp_path, virtual_clock):
    file = tmp_path / "messages.jsonl"

    async def think(session):
        await trio.sleep(1.5)

    agent = FakeAgent(turns=[["hello", think]])
    async with chain(LogMessages(file=file), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "a secret")

    told = lines(file)
    assert all(line.pop("time") > 0 and line.pop("bytes") > 0 for line in told)
    from_client, from_agent = {"source": "client"}, {"source": "agent"}
    answered = {"kind": "response", "error": False}
    assert told[2:] == [
        {**from_client, "kind": "request", "method": "session/new"},
        {**from_agent, **answered, "method": "session/new", "ms": 0.0},
        {**from_client, "kind": "request", "method": "session/prompt", "session": "session-1"},
        {
            **from_agent,
            "kind": "notification",
            "method": "session/update",
            "session": "session-1",
            "update": "agent_message_chunk",
        },
        {**from_agent, **answered, "method": "session/prompt", "ms": 1500.0},
    ]
    assert "secret" not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


async def test_content_is_written_only_if_wanted_and_not_too_large(chain, tmp_path):
    file = tmp_path / "messages.jsonl"
    proxy = LogMessages(file=file, content=True, max_bytes=100, methods=["session/p*"])
    agent = FakeAgent(turns=[[], [RequestError(-1, "no")]])
    async with chain(proxy, agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "x" * 100)
        with pytest.raises(RequestError):
            await client.prompt(session, "hi")

    prompt = {"sessionId": "session-1", "prompt": [{"type": "text", "text": "hi"}]}
    told = [(line["kind"], line.get("error"), line.get("content")) for line in lines(file)]
    assert told == [
        ("request", None, None),
        ("response", False, {"stopReason": "end_turn"}),
        ("request", None, prompt),
        ("response", True, {"code": -1, "message": "no"}),
    ]


async def test_without_a_file_messages_go_to_the_log(chain, capsys):
    log.configure("info", as_json=True, lifecycle=False)
    async with chain(LogMessages(methods=["session/new"]), FakeAgent()) as client:
        await client.initialize()
        await client.new_session("/work")

    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["event"], line["level"], line["kind"]) for line in told] == [
        ("message", "info", "request"),
        ("message", "info", "response"),
    ]


def test_content_needs_a_file():
    with pytest.raises(ValueError, match="give `file`"):
        LogMessages(content=True)


@pytest.mark.parametrize("kind", ["link", "pipe"])
async def test_nothing_is_written_to_what_an_agent_has_put_in_the_place_of_the_file(
    chain, tmp_path, kind
):
    file, startup = tmp_path / "log", tmp_path / ".bashrc"
    startup.write_text("alias ll=ls\n")
    if kind == "link":
        file.symlink_to(startup)
    else:
        os.mkfifo(file)

    async with chain(LogMessages(file=file, content=True), FakeAgent()) as client:
        with pytest.raises(RequestError, match="not a regular file"):
            await client.initialize()

    assert startup.read_text() == "alias ll=ls\n"


async def test_a_full_disk_is_told_once_and_ends_the_log(chain):
    agent = FakeAgent(turns=[["hello"], ["again"]])
    async with chain(LogMessages(file=Path("/dev/full")), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        for _ in range(2):
            await client.prompt(session, "hi")
        told, *answers = filter(None, client.transcript.text().splitlines())

    assert "/dev/full cannot be written, no more messages are logged: No space left" in told
    assert answers == ["helloagain"]
    assert client.attached.ending.reason == "client"
