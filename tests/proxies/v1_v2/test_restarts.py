"""`v1_v2` while the agent fails and is restarted: turns end with an error that names the agent, and
sessions go on in the agent's version."""

from __future__ import annotations

import json
import os
from contextlib import asynccontextmanager
from signal import SIGKILL

import pytest
import trio
from support.peers.process import agent, proxy

from conductor.chainfile import load
from conductor.client.embedding import attach_file
from conductor.errors import RequestError
from conductor.testing import FakeClient

CUT_OFF = (
    "component 'misbehave' exited with status 3. The prompt was cut off and is not repeated; part "
    "of it may have been done. What happens now: it is restarted (1 of 3). What to do: look at "
    "what was done, then send it again."
)
WAYS = {1: ("--back", "load"), 2: ("--back", "resume")}
"""How agents of each version take up sessions of another process."""


@pytest.fixture
def run(tmp_path):
    """Run a client of one version with an agent of the other, which has these flags."""

    @asynccontextmanager
    async def run(version, *flags, before=(), behind=(), by_name=True, **settings):
        command = agent("--stderr-bytes", 0, *flags)
        entry = {"run": command, "name": "misbehave", **settings}
        adapter = [{"use": "v1_v2", "with": {"agent_version": 3 - version}}] if by_name else []
        proxies = [*before, *adapter, *behind]
        file = tmp_path / "chain.yaml"
        file.write_text(json.dumps({"version": 1, "proxies": proxies, "agent": entry}))
        async with attach_file(FakeClient, load(str(file))) as attached:
            attached.client.attached = attached
            await attached.client.initialize(version=version)
            yield attached.client

    return run


def process(name):
    return {"run": proxy(name)}


LOGGED = {"before": [{"use": "log_messages"}], "behind": [{"use": "log_messages"}]}
BETWEEN = [
    pytest.param({}, id="alone"),
    pytest.param(LOGGED, id="plugins"),
    pytest.param(
        {"before": [process("a")], "behind": [process("b")]},
        id="processes",
        marks=pytest.mark.slow,
    ),
]


async def new_session(client):
    answer = await client.request("session/new", {"cwd": "/", "mcpServers": []})
    return answer["sessionId"]


async def failed_turn(client, session, text):
    """The error that ends the turn: the answer in version 1, a state in version 2."""
    if client.protocol_version == 1:
        with pytest.raises(RequestError) as caught:
            await client.prompt(session, text)
        error = caught.value
        return {"code": error.code, "message": error.message, "data": error.data}
    end = await client.prompt_turn(session, text)
    assert end["stopReason"] == "error"
    return end["error"]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("between", BETWEEN)
async def test_a_turn_that_the_agent_does_not_survive_ends_with_an_error(run, version, between):
    async with run(version, *WAYS[3 - version], **between) as client:
        session = await new_session(client)

        error = await failed_turn(client, session, "die 3")

        assert (error["code"], error["message"]) == (-32603, CUT_OFF)
        assert error["data"]["component"] == "misbehave"
        assert (await client.prompt_turn(session, "how"))["stopReason"] == "end_turn"
        told = client.transcript.text()
    assert told.endswith("loaded" if version == 2 else "resumed")
    assert "history" not in told


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("between", BETWEEN)
async def test_a_cancelled_turn_that_the_agent_does_not_end_is_ended(run, version, between):
    deaf = ("--fault", "silent", "--at", "session/cancel")
    async with run(version, *deaf, **between, cancel_timeout="200ms") as client:
        session = await new_session(client)
        ends = []

        async def prompt():
            ends.append(await client.prompt_turn(session, "wait"))

        async with trio.open_nursery() as tasks:
            tasks.start_soon(prompt)
            await client.transcript.wait("session/update agent_message_chunk")
            client.notify("session/cancel", {"sessionId": session})
    assert [end["stopReason"] for end in ends] == ["cancelled"]


@pytest.mark.parametrize("version", [1, 2])
async def test_an_agent_for_which_it_was_inserted_goes_on_in_its_version(run, version):
    only = ("--only", 3 - version)
    async with run(version, *only, *WAYS[3 - version], by_name=False) as client:
        session = await new_session(client)
        error = await failed_turn(client, session, "die 3")
        assert error["message"] == CUT_OFF
        assert (await client.prompt_turn(session, "how"))["stopReason"] == "end_turn"
    assert client.transcript.text().endswith("resumed" if version == 1 else "loaded")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("between", BETWEEN)
async def test_an_agent_that_is_not_restarted_ends_the_turn(run, version, between):
    """Before the connection ends, which in version 2 no request of the client holds open."""
    async with run(version, **between, on_failure="end_chain") as client:
        session = await new_session(client)
        with trio.fail_after(60):
            error = await failed_turn(client, session, "die 3")
    assert "component 'misbehave' exited with status 3" in error["message"]


async def test_its_own_process_tells_the_end_of_the_turn_before_it_ends(run):
    adapter = {"use": "v1_v2", "isolate": True, "with": {"agent_version": 1}}
    async with run(2, before=[adapter], by_name=False, on_failure="end_chain") as client:
        session = await new_session(client)
        with trio.fail_after(60):
            error = await failed_turn(client, session, "die 3")
    assert "component 'misbehave' exited with status 3" in error["message"]


async def test_what_is_queued_for_the_new_process_is_not_ended_by_the_failure(run):
    """The client prompts again at once, before the agent is there."""
    async with run(1, "--back", "resume") as client:
        session = await new_session(client)
        await failed_turn(client, session, "die 3")
        result = await client.prompt(session, "how")
    assert result == {"stopReason": "end_turn"}
    assert client.transcript.text().endswith("resumed")


@pytest.mark.parametrize(
    ("version", "named"),
    [
        (1, True),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in ((1, False), (2, True), (2, False))
        ),
    ],
)
async def test_a_restarted_adapter_converts_as_before_and_replays_nothing(run, version, named):
    """In a process of its own, with a session that the client has loaded."""
    options = {"agent_version": 3 - version} if named else {}
    adapter = {"use": "v1_v2", "isolate": True, "with": options}
    only = ("--only", 3 - version)
    ways = ("--back", "load", "--back", "resume")
    async with run(version, *only, *ways, before=[adapter], by_name=False) as client:
        params = {"sessionId": "s1", "cwd": "/", "mcpServers": []}
        if version == 1:
            await client.request("session/load", params)
        else:
            await client.request("session/resume", {**params, "replayFrom": {"type": "start"}})
        (adapter_process, *_) = client.attached.chain.components
        os.kill(adapter_process.pid, SIGKILL)
        await client.transcript.wait(lambda heard: "was restarted" in str(heard.params))
        method = "session/resume" if version == 1 else "session/load"
        assert (await client.prompt_turn("s1", f"seen {method}"))["stopReason"] == "end_turn"
        told = client.transcript.text()
        replays = [each["sessionUpdate"] for each in client.transcript.updates()]
    assert replays.count("replay_complete") == (version == 2)
    notice = "\n\n[acp-conductor] v1_v2 failed, was restarted\n\n"
    assert told == (f"{notice}1" if version == 1 else "replayed history1")
