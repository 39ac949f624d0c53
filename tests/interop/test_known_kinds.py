"""Clients on the official SDKs with an agent of a newer generation: what they do not know is lost,
or fails; `known_kinds` shows it."""

import json
import subprocess

import pytest


@pytest.fixture
def run(conductor, component, tmp_path):
    """The command of a conductor that runs the agent with this setting of `known_kinds`."""

    def run(setting):
        file = tmp_path / "chain.yaml"
        agent = {"run": component("newer_agent")}
        chain = {"version": 1, "agent": agent, "adapt": {"known_kinds": setting}}
        file.write_text(json.dumps(chain))
        return conductor("run", [str(file)])

    return run


@pytest.fixture
def talk(workspace):
    """Run a client with an agent; returns the finished process, with the text of its output."""

    def talk(client, agent):
        command = [*client, *agent]
        return subprocess.run(command, cwd=workspace, capture_output=True, text=True, timeout=60)

    return talk


TEXTS = ["Rain", "Snow", "done", "asked"]


def shown(summary):
    """The first turn: its texts, the tool call, the entries of the plan and the answer."""
    end = next(index for index, event in enumerate(summary["events"]) if event[0] == "answer")
    events = summary["events"][: end + 1]
    updates = [event[2] for event in events if event[0] == "update"]
    texts = [each["content"]["text"] for each in updates if "content" in each]
    (call,) = (each for each in updates if each["sessionUpdate"] == "tool_call")
    (plan,) = (each for each in updates if each["sessionUpdate"] == "plan")
    return texts, call, plan["entries"], events[-1][1]


def test_the_python_sdk_fails_without_it(talk, run, peer):
    process = talk(peer("py_client"), run("never"))

    assert process.returncode != 0
    assert "validation error" in process.stderr
    assert "weather_update" in process.stderr


def test_the_typescript_sdk_loses_updates_and_refuses_the_question_without_it(talk, run, peer):
    process = talk(peer("ts_client"), run("never"))

    assert "Error handling notification { method: 'session/update', code: -32602" in process.stderr
    texts, call, entries, _ = shown(json.loads(process.stdout))
    assert texts == ["done", "refused"]
    assert "kind" not in call
    assert entries == []


@pytest.mark.parametrize("client", ["py_client", "ts_client"])
def test_the_client_shows_everything_with_it(converse, run, peer, client):
    texts, call, (entry,), answer = shown(converse(peer(client), run("auto")))

    assert texts == TEXTS
    assert (call["kind"], call["status"]) == ("other", "in_progress")
    assert (entry["status"], entry["priority"]) == ("pending", "medium")
    assert answer["stopReason"] == "end_turn"
    assert answer["_meta"] == {"acp-conductor/original": {"stopReason": "paused"}}
