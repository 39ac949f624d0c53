"""Stalls with real processes: all escalation steps, and request timeouts."""

import pytest
from support.peers.process import agent, chunk, proxy

SILENCE = "0.4s"


def stalling(on_stall, *flags, **keys):
    run = agent("--back", "resume", *flags)
    return {"run": run, "name": "agent", "stall_timeout": SILENCE, "on_stall": on_stall, **keys}


def reported(message):
    return "[acp-conductor] agent has been silent for " in chunk(message)


def test_by_default_a_hang_is_only_reported(run_chain):
    editor = run_chain(stalling("report"), proxy("p"))
    editor.open()
    prompt = editor.prompt("wait")

    editor.next(reported)

    editor.send({"method": "session/cancel", "params": {"sessionId": "s1"}})
    assert editor.answer(prompt)["result"] == {"stopReason": "cancelled"}
    assert editor.ask("seen session/cancel").endswith("1")
    assert editor.leave() == 0


def test_a_turn_that_can_be_cancelled_is_cancelled(run_chain):
    editor = run_chain(stalling("restart"))
    editor.open()

    answer = editor.answer(editor.prompt("wait"))

    assert answer["result"] == {"stopReason": "cancelled"}
    assert len(list(filter(reported, editor.others))) == 1
    assert editor.ask("how") == "new"
    assert editor.leave() == 0


def test_an_agent_that_reacts_to_nothing_is_restarted(run_chain):
    editor = run_chain(stalling("restart"), proxy("p"))
    editor.open()

    error = editor.answer(editor.prompt("hang"))["error"]

    assert error["data"]["exitStatus"].startswith("was silent for ")
    assert error["data"]["exitStatus"].endswith(" s (stall_timeout)")
    assert error["data"]["next"] == "it is restarted (1 of 3)"
    assert editor.ask("how").endswith("resumed")
    for action in ("report", "cancel", "cancel_request", "restart"):
        editor.wait_log(f"action={action}")
    assert editor.leave() == 0


@pytest.mark.parametrize("prompt", ["tool", "perm"])
def test_silence_while_a_tool_runs_or_a_person_thinks_is_no_hang(run_chain, prompt):
    """The other session's turn is at its third escalation step by then."""
    editor = run_chain(stalling("restart", "--hang-on", "session/cancel"))
    editor.open()
    editor.answer(editor.request("session/new", cwd="/", mcpServers=[]))
    quiet = editor.prompt(prompt, "s1")
    editor.next(lambda message: message.get("method", "").startswith("session/"))
    stalled = editor.prompt("wait", "s2")

    assert editor.answer(stalled)["error"]["code"] == -32800  # by $/cancel_request
    told = [m["params"]["sessionId"] for m in editor.others if reported(m)]
    assert told == ["s2"]
    editor.close_stdin()
    assert [m["id"] for m in editor.rest() if "id" in m and "method" not in m] == [quiet]
    assert editor.wait() == 0


def test_a_request_that_takes_too_long_is_answered_for_the_agent(run_chain):
    run = agent("--hang-on", "session/load")
    component = {"run": run, "name": "agent", "request_timeout": {"session/load": "0.3s"}}
    editor = run_chain(component, proxy("p"))
    editor.open()

    error = editor.answer(editor.request("session/load", sessionId="x", cwd="/", mcpServers=[]))

    assert error["error"] == {
        "code": -32603,
        "message": "agent did not answer session/load within 0.3 s (request_timeout)",
        "data": {"component": "agent"},
    }
    assert editor.ask("seen $/cancel_request").endswith("1")
    assert editor.leave() == 0


@pytest.mark.parametrize("who", ["agent", "proxy"])
def test_the_turn_of_a_prompt_that_takes_too_long_ends_at_the_agent(run_chain, who):
    """The client may prompt again, so the old turn must end at the agent."""
    timeout = {"request_timeout": {"session/prompt": "0.3s"}}
    first = {"run": agent("--hang-on", "$/cancel_request"), "name": "agent"} | (
        timeout if who == "agent" else {}
    )
    editor = run_chain(
        first, {"run": proxy("p"), "name": "p"} | (timeout if who == "proxy" else {})
    )
    editor.open()

    error = editor.answer(editor.prompt("wait"))["error"]

    assert error["data"] == {"component": "agent" if who == "agent" else "p"}
    assert editor.ask("seen session/cancel").endswith("1")
    assert editor.leave() == 0


def test_a_late_answer_is_not_a_second_one(run_chain):
    component = {"run": agent(), "name": "agent", "request_timeout": {"session/prompt": "0.3s"}}
    editor = run_chain(component)
    editor.open()
    prompt = editor.prompt("perm")
    question = editor.next(lambda message: message.get("method") == "session/request_permission")
    assert "request_timeout" in editor.answer(prompt)["error"]["message"]

    editor.send({"id": question["id"], "result": {"outcome": {"outcome": "cancelled"}}})

    assert editor.ask("echo x").endswith("x")
    line = editor.wait_log("late answer dropped")
    assert all(word in line for word in ("agent", "method=session/prompt", "session=s")), line
    editor.close_stdin()
    assert [m for m in editor.rest() if m.get("id") == prompt] == []
    assert editor.wait() == 0


def test_a_proxy_is_not_blamed_for_the_silence_of_its_successor(run_chain):
    """The proxy waits for the agent's response."""
    spec = {"run": proxy("p"), "name": "p", "stall_timeout": SILENCE, "on_stall": "restart"}
    editor = run_chain(stalling("cancel_request", "--hang-on", "session/cancel"), spec)
    editor.open()

    answer = editor.answer(editor.prompt("wait"))

    assert answer["error"]["code"] == -32800
    assert [m for m in editor.others if "p has been silent" in chunk(m)] == []
    assert editor.leave() == 0
