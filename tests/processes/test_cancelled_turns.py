"""Cancelled and silent turns that a stopped process holds up. The rest is in tests/engine."""

import os
from signal import SIGCONT, SIGSTOP

from support.peers.process import agent, chunk, proxy
from support.waiting import told

CANCELLED = {"stopReason": "cancelled"}
TOLD = "agent did not end the cancelled turn within "
PATIENT = "2s"
"""Long enough for an agent or a proxy to answer, on a busy machine."""


def impatient(*flags, seconds="0.3s", **keys):
    run = agent("--back", "resume", *flags)
    return {"run": run, "name": "agent", "cancel_timeout": seconds, **keys}


def stopped_in_turn(editor, text="wait"):
    """Begin a turn, stop the agent, and cancel the turn; returns the agent and the prompt's id."""
    prompt = editor.prompt(text)
    editor.next(lambda message: "waiting" in chunk(message))
    process = next(p for p in editor.components if "misbehave" in p.cmdline()[3])
    os.kill(process.pid, SIGSTOP)
    editor.send({"method": "session/cancel", "params": {"sessionId": "s1"}})
    return process, prompt


def answers(editor, id):
    return [message for message in editor.others if message.get("id") == id]


def test_a_cancelled_turn_of_a_stopped_agent_is_answered_by_the_conductor(run_chain):
    editor = run_chain(impatient(seconds=PATIENT), proxy("p"))
    editor.open()
    process, prompt = stopped_in_turn(editor)

    assert editor.answer(prompt)["result"] == CANCELLED
    notice = chunk(told(editor, TOLD))
    assert f"; its process {process.pid} is stopped by SIGSTOP" in notice
    assert "the turn was ended without it" in notice

    # It wakes up, answers late, and takes the next prompt.
    os.kill(process.pid, SIGCONT)
    editor.others.clear()
    assert editor.ask("how") == "p>[p]new"
    assert answers(editor, prompt) == []
    editor.wait_log("late answer dropped")
    assert editor.leave() == 0


def test_the_chain_file_may_have_the_agent_restarted(run_chain):
    editor = run_chain(impatient(seconds=PATIENT, on_cancel_timeout="restart"), proxy("p"))
    editor.open()
    _, prompt = stopped_in_turn(editor)

    assert editor.answer(prompt)["result"] == CANCELLED
    assert "it is restarted" in chunk(told(editor, TOLD))
    told(editor, "agent failed, was restarted")
    assert editor.ask("how") == "p>[p]resumed"
    assert "(cancel_timeout)" in editor.wait_log("component failed")
    assert editor.leave() == 0


RENAMES = """\
from conductor.proxy import Proxy, on


class Renames(Proxy):
    @on("session/set_mode")
    async def send_another(self, params, forward):
        self.start_soon(self.client.say, params["sessionId"], "sent")
        return await self.agent.request("session/set_config_option", params)
"""


def test_the_blocking_component_is_named_also_for_a_request_of_another_method(run_chain, tmp_path):
    (tmp_path / "renames.py").write_text(RENAMES)
    renames = {"use": f"{tmp_path}/renames.py:Renames"}
    hanging = impatient("--hang-on", "session/set_config_option", seconds=PATIENT)
    editor = run_chain(hanging, renames)
    editor.open()
    request = editor.request("session/set_mode", sessionId="s1", modeId="x")
    editor.next(lambda message: chunk(message) == "sent")
    editor.send({"method": "$/cancel_request", "params": {"requestId": request}})

    error = editor.answer(request)["error"]

    assert error["message"].endswith(" was cancelled, and agent did not answer")
    assert error["data"] == {"component": "agent"}
    assert editor.leave() == 0


def test_a_stopped_proxy_is_named_and_the_turn_ends(run_chain):
    proxies = [{"run": proxy(name), "name": name} for name in "pq"]
    editor = run_chain(impatient("--hang-on", "x", seconds="1s"), *proxies)
    editor.open()
    prompt = editor.prompt("wait")
    editor.next(lambda message: "waiting" in chunk(message))
    process = next(p for p in editor.components if "q" in p.cmdline())
    os.kill(process.pid, SIGSTOP)
    editor.send({"method": "session/cancel", "params": {"sessionId": "s1"}})

    assert editor.answer(prompt)["result"] == CANCELLED
    told(editor, "q did not end the cancelled turn within 1 s")

    # The agent was told in its place, what comes late is dropped, and the session goes on.
    os.kill(process.pid, SIGCONT)
    assert editor.ask("seen session/prompt").endswith("2")
    assert answers(editor, prompt) == []
    assert editor.leave() == 0


def test_a_silent_agent_that_reacts_to_nothing_is_restarted(run_chain):
    run = agent("--back", "resume")
    silent = {"run": run, "name": "agent", "stall_timeout": "0.4s", "on_stall": "restart"}
    editor = run_chain(silent, proxy("p"))
    editor.open()

    error = editor.answer(editor.prompt("hang"))["error"]

    assert error["data"]["exitStatus"].startswith("was silent for ")
    assert error["data"]["exitStatus"].endswith(" s (stall_timeout)")
    assert error["data"]["next"] == "it is restarted (1 of 3)"
    assert editor.ask("how").endswith("resumed")
    for action in ("report", "cancel", "cancel_request", "restart"):
        editor.wait_log(f"action={action}")
    assert editor.leave() == 0
