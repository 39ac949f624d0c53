"""`known_kinds` shows clients on the official SDKs what an agent of a newer generation says."""

import json

import pytest


@pytest.fixture
def run(conductor, component, tmp_path):
    """The command of a conductor that runs the agent with `known_kinds`."""
    file = tmp_path / "chain.yaml"
    agent = {"run": component("newer_agent")}
    file.write_text(json.dumps({"version": 1, "agent": agent, "adapt": {"known_kinds": "auto"}}))
    return conductor("run", [str(file)])


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


@pytest.mark.parametrize("client", ["py_client", "ts_client"])
def test_the_client_shows_everything_with_it(converse, run, peer, client):
    texts, call, (entry,), answer = shown(converse(peer(client), run))

    assert texts == TEXTS
    assert (call["kind"], call["status"]) == ("other", "in_progress")
    assert (entry["status"], entry["priority"]) == ("pending", "medium")
    assert answer["stopReason"] == "end_turn"
    assert answer["_meta"] == {"acp-conductor/original": {"stopReason": "paused"}}
