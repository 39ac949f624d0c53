"""A stalled agent that is a process: all escalation steps. The rest is in tests/engine."""

from support.peers.process import agent, proxy

SILENCE = "0.4s"


def stalling(on_stall, *flags, **keys):
    run = agent("--back", "resume", *flags)
    return {"run": run, "name": "agent", "stall_timeout": SILENCE, "on_stall": on_stall, **keys}


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
