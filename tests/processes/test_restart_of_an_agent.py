"""A failed agent is restarted; its sessions are resumed or reported as lost.

A failure is reported once, in the error of the interrupted request.
"""

import os
from signal import SIGKILL, SIGTERM

import pytest
from support.peers.process import CONDUCTOR, agent, chunk, is_running, proxy, words
from support.waiting import told


def error_of(answer):
    return answer["error"]


def texts(messages):
    return [text for text in map(chunk, messages) if text]


def test_an_interrupted_prompt_is_answered_at_once_with_the_cause(run_chain):
    editor = run_chain(agent("--back", "resume", "--stderr-bytes", 0), proxy("p"))
    editor.open()

    answer = editor.answer(editor.prompt("die 3"))

    error = error_of(answer)
    assert error["code"] == -32603
    assert error["message"] == (
        "component 'misbehave' exited with status 3. The prompt was cut off and is not repeated; "
        "part of it may have been done. What happens now: it is restarted (1 of 3). "
        "What to do: look at what was done, then send it again."
    )
    place = error["data"].pop("place")
    assert place.split(":")[0].endswith("chain.yaml")
    assert error["data"] == {
        "component": "misbehave",
        "exitStatus": "exited with status 3",
        "details": error["message"],
        "next": "it is restarted (1 of 3)",
    }
    assert editor.ask("echo again").endswith("p>[p]again")
    assert editor.leave() == 0


def test_the_last_lines_of_its_stderr_are_in_the_error(run_chain, once):
    editor = run_chain(agent(*once("exit1", "session/prompt")))
    editor.open()

    error = error_of(editor.answer(editor.prompt("echo x")))

    assert error["data"]["exitStatus"] == "exited with status 1"
    assert error["data"]["stderr"] == ["about to exit"]
    assert editor.leave() == 0


@pytest.mark.parametrize(
    ("way", "how"), [("load", "loaded"), pytest.param("resume", "resumed", marks=pytest.mark.fast)]
)
def test_a_session_is_resumed_and_its_history_is_not_sent_twice(run_chain, way, how):
    editor = run_chain(agent("--back", way), proxy("p"))
    editor.open()
    assert editor.ask("how") == "p>[p]new"
    editor.answer(editor.prompt("die 3"))
    editor.others.clear()

    answer = editor.answer(editor.prompt("how"))

    assert answer["result"] == {"stopReason": "end_turn"}
    assert texts(editor.others) == [
        "\n\n[acp-conductor] misbehave failed, was restarted\n\n",
        f"p>[p]{how}",
    ]
    assert editor.leave() == 0


@pytest.mark.parametrize("fault", ["close-stdout", "close-stdin", "half-line"])
def test_an_agent_that_closes_a_stream_has_failed(run_chain, once, fault):
    how = {
        "close-stdout": "closed its stdout",
        "close-stdin": "closed its stdin",
        "half-line": "exited with status 1",
    }
    editor = run_chain(agent("--back", "resume", *once(fault, "_fault")))
    editor.open()
    prompt = editor.prompt("wait")
    editor.next(chunk)

    editor.send({"method": "_fault", "params": {}})
    if fault == "close-stdin":  # more than a pipe buffers
        editor.send({"method": "_more", "params": {"x": "y" * 1_000_000}})

    assert editor.answer(prompt)["error"]["data"]["exitStatus"] == how[fault]
    assert editor.ask("how").endswith("resumed")
    assert editor.leave() == 0


def test_a_failure_during_the_replay_is_another_failure(run_chain, tmp_path):
    """The first try to take the session up again ends the second process."""
    flags = ["--fault", "exit1", "--at", "session/resume", "--once", str(tmp_path / "once")]
    editor = run_chain(agent("--back", "resume", *flags))
    editor.open()
    cut = editor.answer(editor.prompt("die 3"))
    held = editor.prompt("how")

    assert cut["error"]["data"]["next"] == "it is restarted (1 of 3)"
    assert editor.answer(held)["result"] == {"stopReason": "end_turn"}
    assert texts(editor.others)[-1] == "resumed"
    assert editor.leave() == 0


@pytest.mark.parametrize("end", ["eof", "signal"])
def test_the_chain_ends_while_its_agent_waits_to_be_restarted(run_chain, end):
    """The ninth restart is many seconds away: the chain does not wait for it."""
    run = agent("--fault", "exit1", "--at", "session/resume", "--back", "resume")
    editor = run_chain({"run": run, "restarts": "9 in 1h", "stop_timeout": "1s"}, log="warning")
    editor.open()
    cut = editor.prompt("die 3")
    assert "error" in editor.answer(cut)
    held = editor.prompt("how")
    for attempt in range(2, 5):
        editor.wait_log(f"({attempt} of 9)")

    if end == "eof":
        editor.close_stdin()
    else:
        editor.signal(SIGTERM)

    answers = [message for message in editor.rest() if "id" in message]
    assert [answer["id"] for answer in answers] == [held]
    assert answers[0]["error"]["code"] == -32603
    assert editor.wait() == (0 if end == "eof" else 143)


def test_a_nested_conductor_is_a_proxy_like_any_other(run_chain):
    """It reports its restarts to the client, and is restarted itself when killed."""
    nested = {"name": "nested", "run": [*CONDUCTOR, "proxy", *words(proxy("a"), proxy("b"))]}
    editor = run_chain(agent(), nested)
    editor.open()
    assert editor.ask("echo x") == "a>b>[b][a]x"
    (conductor,) = (p for p in editor.components if "conductor" in p.cmdline())
    inner = [p for p in conductor.children() if "pass_proxy" in " ".join(p.cmdline())]

    os.kill(inner[0].pid, SIGKILL)

    message = told(editor, "was restarted")
    assert chunk(message) == "\n\n[acp-conductor] pass_proxy failed, was restarted\n\n"
    assert "x" in editor.ask("echo x")
    os.kill(conductor.pid, SIGKILL)
    message = told(editor, "was restarted")
    assert chunk(message) == "\n\n[acp-conductor] nested failed, was restarted\n\n"
    assert "x" in editor.ask("echo x")
    assert not any(map(is_running, inner))
    assert editor.leave() == 0
