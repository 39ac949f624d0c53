"""Cancelled turns that a proxy, a plugin or a plugin agent holds up, with real processes."""

import json
import os
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest
from support.peers.process import agent, chunk, proxy
from support.waiting import told, told_by_notice

CANCELLED = {"stopReason": "cancelled"}
PLUGINS = Path(__file__).parent / "hanging_plugins.py"
SECONDS = "1s"


def quiet_agent(*flags):
    return {"run": agent("--back", "resume", *flags), "name": "agent", "cancel_timeout": SECONDS}


def named(name, **keys):
    return {"run": proxy(name), "name": name, **keys}


def plugin(how, **keys):
    return {"use": f"{PLUGINS}:Hanging", "name": "plugin", "with": {"how": how}, **keys}


def blocked_by(name):
    return f"{name} did not end the cancelled turn within 1 s"


def process_of(editor, name):
    return next(p for p in editor.components if name in p.cmdline())


def cancel(editor):
    editor.send({"method": "session/cancel", "params": {"sessionId": "s1"}})


def waiting(message):
    return "waiting" in chunk(message)


def answers(editor, id):
    return [message for message in editor.others if message.get("id") == id]


@pytest.mark.parametrize("stopped", ["p", "q"])
def test_a_stopped_proxy_is_named_and_the_turn_ends(run_chain, stopped):
    editor = run_chain(quiet_agent(), named("p"), named("q"))
    editor.open()
    prompt = editor.prompt("wait")
    editor.next(waiting)
    process = process_of(editor, stopped)
    os.kill(process.pid, SIGSTOP)
    cancel(editor)

    assert editor.answer(prompt)["result"] == CANCELLED
    told(editor, blocked_by(stopped))

    # The agent was told in its place, what comes late is dropped, and the session goes on.
    os.kill(process.pid, SIGCONT)
    assert editor.ask("seen session/prompt").endswith("2")
    assert "did not end" not in json.dumps(editor.others)
    assert answers(editor, prompt) == []
    assert editor.leave() == 0


def test_a_prompt_that_a_stopped_proxy_never_passed_on_ends_too(run_chain):
    editor = run_chain(quiet_agent(), named("p"))
    editor.open()
    os.kill(process_of(editor, "p").pid, SIGSTOP)
    prompt = editor.prompt("wait")
    cancel(editor)

    assert editor.answer(prompt)["result"] == CANCELLED
    told(editor, blocked_by("p"))
    os.kill(process_of(editor, "p").pid, SIGCONT)
    assert editor.leave() == 0


def test_a_stopped_proxy_may_be_restarted_and_the_agent_is_not(run_chain):
    editor = run_chain(quiet_agent(), named("p", on_cancel_timeout="restart"))
    editor.open()
    prompt = editor.prompt("wait")
    editor.next(waiting)
    before = process_of(editor, "p").pid
    os.kill(before, SIGSTOP)
    cancel(editor)

    assert editor.answer(prompt)["result"] == CANCELLED
    assert "it is restarted" in chunk(told(editor, blocked_by("p")))
    told(editor, "p failed, was restarted")
    assert editor.ask("how") == "p>[p]new"
    assert process_of(editor, "p").pid != before
    assert editor.leave() == 0


def test_a_withdrawn_request_of_a_stopped_proxy_is_answered(run_chain):
    editor = run_chain(quiet_agent(), named("p"))
    editor.open()
    process = process_of(editor, "p")
    os.kill(process.pid, SIGSTOP)
    request = editor.request("session/set_mode", sessionId="s1", modeId="x")
    editor.send({"method": "$/cancel_request", "params": {"requestId": request}})

    error = editor.answer(request)["error"]

    assert error["code"] == -32800
    assert error["data"] == {"component": "p"}
    os.kill(process.pid, SIGCONT)
    assert editor.ask("echo x").endswith("x")
    assert editor.leave() == 0


@pytest.mark.parametrize("how", ["before", "after", "stubborn", "on cancel", "on update"])
@pytest.mark.parametrize("first", [[], ["p"]], ids=["alone", "behind a proxy"])
def test_a_plugin_that_hangs_is_named_and_the_turn_ends(run_chain, how, first):
    hanging = plugin(how, stop_timeout="0.1s")
    editor = run_chain(quiet_agent(), *map(named, first), hanging)
    editor.open()
    prompt = editor.prompt("wait")
    if how in ("after", "on cancel", "on update"):
        editor.next(waiting)
    cancel(editor)

    assert editor.answer(prompt)["result"] == CANCELLED
    told(editor, blocked_by("plugin"))
    assert answers(editor, prompt) == []
    if how in ("before", "after"):  # its handler was cancelled: the session goes on
        assert editor.ask("echo x").endswith("x")
        assert answers(editor, prompt) == []
        assert editor.leave() == 0
    assert "did not end" not in json.dumps(editor.others)


@pytest.mark.parametrize("how", ["before", "stubborn"])
def test_a_plugin_agent_that_hangs_is_named_and_the_turn_ends(run_chain, how):
    hanging = {
        "use": f"{PLUGINS}:HangingAgent",
        "name": "agent",
        "with": {"how": how},
        "cancel_timeout": SECONDS,
        "stop_timeout": "0.1s",
    }
    editor = run_chain(hanging, named("p"))
    editor.open()
    prompt = editor.prompt("wait")
    editor.next(waiting)
    cancel(editor)

    assert editor.answer(prompt)["result"] == CANCELLED
    told(editor, blocked_by("agent"))
    assert editor.answer(editor.prompt("echo x"))["result"] == {"stopReason": "end_turn"}
    assert answers(editor, prompt) == []


# -- version 2 -------------------------------------------------------------------------------------


def idle(message):
    return message.get("params", {}).get("update", {}).get("state") == "idle"


@pytest.mark.parametrize("stuck", ["p", "plugin"])
def test_version_2_the_session_of_a_stuck_component_is_reported_idle(run_chain, stuck):
    blocked = plugin("on cancel", stop_timeout="0.1s") if stuck == "plugin" else named("p")
    editor = run_chain(quiet_agent(), blocked)
    editor.answer(editor.request("initialize", protocolVersion=2, capabilities={}))
    editor.answer(editor.request("session/new", cwd="/", mcpServers=[]))
    editor.prompt("wait")
    editor.next(waiting)
    if stuck == "p":
        os.kill(process_of(editor, "p").pid, SIGSTOP)
    cancel(editor)

    update = editor.next(idle)["params"]["update"]

    assert update["stopReason"] == "cancelled"
    assert blocked_by(stuck) in told_by_notice(editor)["title"]
    if stuck == "p":
        os.kill(process_of(editor, "p").pid, SIGCONT)
        assert editor.leave() == 0
