"""Cancelled turns that the agent does not end, with real processes."""

import os
from signal import SIGCONT, SIGSTOP

from support.peers.process import agent, chunk, proxy
from support.waiting import told, told_by_notice

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


def test_repeated_cancellations_count_as_one(run_chain):
    """They come in one piece, which is passed on as one."""
    editor = run_chain(impatient("--hang-on", "session/cancel"))
    editor.open()
    prompt = editor.prompt("wait")
    editor.next(lambda message: "waiting" in chunk(message))

    editor.send(*[{"method": "session/cancel", "params": {"sessionId": "s1"}}] * 3)

    assert editor.answer(prompt)["result"] == CANCELLED
    told(editor, TOLD)
    assert editor.ask("echo x") == "x"
    assert [m for m in editor.others if TOLD in chunk(m)] == []
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


# -- $/cancel_request ------------------------------------------------------------------------------


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


# -- version 2 -------------------------------------------------------------------------------------


def opened_in_version_2(editor):
    editor.answer(editor.request("initialize", protocolVersion=2, capabilities={}))
    editor.answer(editor.request("session/new", cwd="/", mcpServers=[]))


def states(editor):
    updates = [m["params"]["update"] for m in editor.others if "update" in m.get("params", {})]
    return [update for update in updates if update["sessionUpdate"] == "state_update"]


def idle(message):
    return message.get("params", {}).get("update", {}).get("state") == "idle"


def test_version_2_a_stopped_agent_is_reported_idle(run_chain):
    editor = run_chain(impatient(seconds=PATIENT), proxy("p"))
    opened_in_version_2(editor)
    process, _ = stopped_in_turn(editor)

    update = editor.next(idle)["params"]["update"]

    assert update == {"sessionUpdate": "state_update", "state": "idle", **CANCELLED}
    assert TOLD in told_by_notice(editor)["title"]

    os.kill(process.pid, SIGCONT)
    editor.next(idle)  # the late end of the old turn
    editor.others.clear()
    editor.answer(editor.prompt("how"))
    editor.next(idle)
    assert "p>[p]new" in map(chunk, editor.others)
    assert [state["state"] for state in states(editor)] == ["running"]
    assert editor.leave() == 0
