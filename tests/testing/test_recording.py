"""Recordings are read with their lines' mistakes."""

from __future__ import annotations

import json
import os
import re

import pytest
from support import record_agents

from conductor.testing import Recording

REQUEST = {
    "type": "request",
    "ts": 0.5,
    "protocol": "acp",
    "from": "Client",
    "to": "Agent",
    "id": 1,
    "method": "session/new",
    "params": {"cwd": "/project", "mcpServers": []},
}
RESPONSE = {
    "type": "response",
    "ts": 0.75,
    "from": "Agent",
    "to": "Client",
    "id": 1,
    "is_error": False,
    "payload": {"sessionId": "/project/1"},
}


@pytest.fixture
def file(tmp_path):
    def write(*events):
        path = tmp_path / "mine.jsonl"
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
        return path

    return write


def test_a_recording_is_read(file):
    recording = Recording.load(file(REQUEST, RESPONSE))

    assert recording.name == "mine"
    assert recording.labels == ["session/new?", "answer to session/new"]
    assert [message.content for message in recording.messages] == [
        REQUEST["params"],
        RESPONSE["payload"],
    ]


def test_an_end_of_a_chain_is_read_from_a_trace_of_the_rust_conductor(file):
    """Which has neither names nor numbers, and the same id on every hop."""
    hops = [("Client", "Proxy(0)", "/project"), ("Proxy(0)", "Agent", "/inside")]
    asked = [
        REQUEST | {"from": sender, "to": receiver, "params": {"cwd": cwd}}
        for sender, receiver, cwd in hops
    ]
    answered = [
        RESPONSE | {"from": receiver, "to": sender, "payload": {"sessionId": cwd}}
        for sender, receiver, cwd in reversed(hops)
    ]
    path = file(*asked, *answered)

    for end, cwd in (("client", "/project"), ("agent", "/inside")):
        messages = Recording.load(path, end=end).messages
        assert [(each.toward, each.content) for each in messages] == [
            ("agent", {"cwd": cwd}),
            ("client", {"sessionId": cwd}),
        ]


def test_the_working_directory_is_replaced(file):
    asked, answered = Recording.load(file(REQUEST, RESPONSE)).moved('/a "b"').messages

    assert asked.params["cwd"] == '/a "b"'
    assert answered.payload["sessionId"] == '/a "b"/1'


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ([], "Expected `object`, got `array`"),
        ({**REQUEST, "type": "batch"}, "Invalid value 'batch'"),
        ({**REQUEST, "method": 1}, "Expected `str`, got `int`"),
    ],
)
def test_a_line_that_is_no_message_is_named(file, wrong, problem):
    with pytest.raises(ValueError, match=rf"mine\.jsonl:2: .*{re.escape(problem)}"):
        Recording.load(file(REQUEST, wrong))


def test_an_unknown_recording_is_answered_with_the_known_names():
    with pytest.raises(
        ValueError, match="no recording is called 'claude'; there are: claude-agent-acp, gemini-cli"
    ):
        Recording.load("claude")


@pytest.mark.parametrize("name", Recording.names())
def test_recordings_of_the_package_have_the_same_prompts(name):
    assert Recording.load(name).prompts == list(record_agents.PROMPTS)


@pytest.mark.parametrize("name", Recording.names())
def test_recordings_of_the_package_are_small_and_of_no_machine(name):
    text = (record_agents.DIRECTORY / f"{name}.jsonl").read_text()

    assert len(text) < 50_000
    assert not re.search(r"/root|/tmp/|127\.0\.0\.1|localhost", text)


ANYTIME = {
    f"session/update {kind}"
    for kind in ("session_info_update", "usage_update", "available_commands_update")
}
"""What claude-agent-acp sends when it is ready, during a turn or after it."""


@pytest.mark.external
@pytest.mark.parametrize("name", record_agents.PROGRAMS)
async def test_an_agent_still_answers_as_in_its_recording(name, tmp_path):
    if not os.environ.get(record_agents.PROGRAMS[name].variable):
        pytest.skip(f"{record_agents.PROGRAMS[name].variable} is not set")
    await record_agents.record(name, tmp_path / "new.jsonl", tmp_path)

    new, old = Recording.load(tmp_path / "new.jsonl"), Recording.load(name)
    assert [each for each in new.labels if each not in ANYTIME] == [
        each for each in old.labels if each not in ANYTIME
    ]
