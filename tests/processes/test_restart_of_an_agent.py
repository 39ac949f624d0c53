"""A failed agent is restarted; its sessions are resumed or reported as lost.

A failure is reported once, in the error of the interrupted request.
"""

import json
import os
from signal import SIGKILL, SIGTERM

import pytest
from support.peers.process import CONDUCTOR, agent, chunk, is_running, proxy, words
from support.waiting import told, told_by_notice


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
    ("ways", "how"),
    [
        (["resume"], "resumed"),
        (["load"], "loaded"),
        pytest.param(["resume", "load"], "resumed", marks=pytest.mark.fast),
    ],
)
def test_a_session_is_resumed_and_its_history_is_not_sent_twice(run_chain, ways, how):
    flags = [word for way in ways for word in ("--back", way)]
    editor = run_chain(agent(*flags), proxy("p"))
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


def test_a_new_session_with_the_id_of_a_lost_one_is_not_lost(run_chain):
    """Some agents count their sessions, from one each time they start."""
    editor = run_chain(agent("--stderr-bytes", 0))
    editor.open()
    editor.answer(editor.prompt("die 3"))

    answer = editor.answer(editor.request("session/new", cwd="/", mcpServers=[]))

    assert answer["result"] == {"sessionId": "s1"}
    assert editor.ask("how") == "new"
    assert editor.leave() == 0


def test_the_replayed_session_set_up_is_the_one_that_the_agent_received(run_chain, tmp_path):
    """Not as the client sent it: a proxy may have changed the request."""
    editor = run_chain(agent("--back", "resume"), proxy("p"))
    editor.initialize()
    server = {"name": "s", "command": "/bin/true", "args": [], "env": []}
    editor.answer(editor.request("session/new", cwd=str(tmp_path), mcpServers=[server]))
    editor.answer(editor.prompt("die 3"))

    assert editor.ask("seen session/resume").endswith("1")
    assert editor.ask("seen session/new").endswith("0")
    assert editor.ask("seen initialize").endswith("1")
    assert editor.leave() == 0


def test_a_prompt_that_waits_for_the_restart_can_be_cancelled(run_chain):
    editor = run_chain(agent("--back", "resume"))
    editor.open()
    assert "error" in editor.answer(editor.prompt("die 3"))
    by_session = editor.prompt("wait")
    editor.send({"method": "session/cancel", "params": {"sessionId": "s1"}})
    by_request = editor.prompt("wait")
    editor.send({"method": "$/cancel_request", "params": {"requestId": by_request}})

    answers = [editor.next(lambda message: "id" in message) for _ in range(2)]

    assert [answer["id"] for answer in answers] == [by_session, by_request]
    assert answers[0]["result"] == {"stopReason": "cancelled"}
    assert answers[1]["error"]["code"] == -32800
    assert editor.leave() == 0


def test_a_request_of_the_dead_agent_is_cancelled_at_the_client(run_chain):
    editor = run_chain(agent("--back", "resume"), proxy("p"))
    editor.open()
    prompt = editor.prompt("perm")
    question = editor.next(lambda message: message.get("method") == "session/request_permission")

    os.kill(named(editor, "echo_agent", "misbehave").pid, SIGKILL)

    cut = editor.answer(prompt)
    assert cut["error"]["data"]["exitStatus"] == "was ended by SIGKILL"
    withdrawn = [m["params"] for m in editor.others if m.get("method") == "$/cancel_request"]
    if not withdrawn:
        found = editor.next(lambda message: message.get("method") == "$/cancel_request")
        withdrawn = [found["params"]]
    assert withdrawn == [{"requestId": question["id"]}]
    editor.send({"id": question["id"], "result": {"outcome": {"outcome": "cancelled"}}})
    assert editor.ask("how").endswith("p>[p]resumed")
    assert editor.leave() == 0


def named(editor, *names):
    (found,) = (
        process
        for process in editor.components
        if any(name in word for name in names for word in process.cmdline())
    )
    return found


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


def test_an_exhausted_restart_budget_ends_the_chain_and_answers_every_request(run_chain):
    component = {"run": agent("--back", "resume"), "restarts": "1 in 1h"}
    editor = run_chain(component, proxy("p"))
    editor.open()
    first = editor.answer(editor.prompt("die 3"))
    waiting = editor.prompt("wait")
    editor.next(lambda message: "waiting" in chunk(message))

    last = editor.prompt("die 4")

    answers = {message["id"]: message["error"] for message in editor.rest() if "id" in message}
    assert set(answers) == {waiting, last}
    assert first["error"]["data"]["next"] == "it is restarted (1 of 1)"
    assert {error["data"]["next"] for error in answers.values()} == {"the chain ends"}
    assert editor.wait() == 1


@pytest.mark.fast
def test_on_failure_end_chain_ends_the_chain_with_the_agent(run_chain):
    editor = run_chain({"run": agent(), "on_failure": "end_chain"})
    editor.open()

    error = error_of(editor.answer(editor.prompt("die 3")))

    assert error["data"]["next"] == "the chain ends"
    assert editor.rest() == []
    assert editor.wait() == 1


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


@pytest.mark.parametrize("end", ["eof", "signal"])
def test_the_chain_ends_while_its_agent_is_restored(run_chain, once, end):
    run = agent(*once("silent", "session/resume"), "--back", "resume")
    editor = run_chain({"run": run, "stop_timeout": "1s"}, log="debug")
    editor.open()
    editor.answer(editor.prompt("die 3"))
    held = editor.prompt("how")
    path = run[run.index("--once") + 1]
    wait_for_file(editor, path)

    if end == "eof":
        editor.close_stdin()
    else:
        editor.signal(SIGTERM)

    answers = [message for message in editor.rest() if "id" in message]
    assert [answer["id"] for answer in answers] == [held]
    assert editor.wait() == (0 if end == "eof" else 143)


def wait_for_file(editor, path):
    """The second process has been started, and asked."""
    started = [line for line in editor.log if "component started" in line]
    while len(started) < 2:
        editor.wait_log("component started")
        with editor._logged:
            editor._logged.wait_for(
                lambda: len([x for x in editor.log if "component started" in x]) >= 2, 30
            )
        started = [line for line in editor.log if "component started" in line]


def test_version_2_resumes_and_ends_the_turn_with_an_error(run_chain):
    """There a prompt is answered when it begins, so a state has the error."""
    editor = run_chain(agent("--back", "resume"), proxy("p"))
    editor.answer(editor.request("initialize", protocolVersion=2, capabilities={}))
    editor.answer(editor.request("session/new", cwd="/", mcpServers=[]))
    assert editor.answer(editor.prompt("wait"))["result"] == {}
    editor.next(lambda message: "waiting" in chunk(message))

    os.kill(named(editor, "misbehave").pid, SIGKILL)

    editor.others.clear()
    idle = editor.next(state_of)["params"]["update"]
    error = idle.pop("error")
    state = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "error"}
    assert idle == state
    assert error["code"] == -32603
    assert error["data"]["component"] == "misbehave"
    assert error["message"] == (
        "component 'misbehave' was ended by SIGKILL. The prompt was cut off and is not repeated; "
        "part of it may have been done. What happens now: it is restarted (1 of 3). "
        "What to do: look at what was done, then send it again."
    )
    assert "misbehave failed, was restarted" in told_by_notice(editor)["title"]
    assert editor.answer(editor.prompt("seen session/resume"))["result"] == {}
    editor.next(lambda message: chunk(message) == "p>[p]1")
    editor.others.clear()
    editor.answer(editor.prompt("how"))
    last = editor.next(lambda message: state_of(message) == "idle")
    assert last["params"]["sessionId"] == "s1"
    assert "p>[p]resumed" in texts(editor.others)
    assert editor.leave() == 0


def state_of(message):
    if message.get("method") != "session/update":
        return None
    return message["params"]["update"].get("state")


def test_requests_answered_by_a_proxy_are_answered_while_the_agent_is_down(run_chain, tmp_path):
    """A proxy answers something itself; the agent never comes back in this test."""
    plugin = tmp_path / "answering.py"
    plugin.write_text(
        "import attrs\nfrom conductor.proxy import Proxy, on\n\n\n@attrs.define\n"
        "class Answering(Proxy):\n"
        '    @on("_mine", source="client")\n'
        "    async def mine(self, params: dict, forward):\n"
        '        return {"mine": True}\n'
    )
    run = agent("--fault", "silent", "--at", "session/resume", "--back", "resume")
    editor = run_chain({"run": run, "stop_timeout": "1s"}, {"use": f"{plugin}:Answering"})
    editor.open()
    editor.answer(editor.prompt("die 3"))
    held = editor.prompt("echo x")

    answer = editor.answer(editor.request("_mine"))

    assert answer["result"] == {"mine": True}
    editor.close_stdin()
    assert [message["id"] for message in editor.rest() if "id" in message] == [held]
    assert editor.wait() == 0


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


def test_errors_are_json_that_names_no_secret(run_chain):
    editor = run_chain({"run": agent("--back", "resume"), "env": {"TOKEN": "s3cret-value"}})
    editor.open()

    answer = editor.answer(editor.prompt("die 3"))

    assert "s3cret" not in json.dumps(answer)
    assert editor.leave() == 0


def test_stderr_of_an_earlier_success_is_in_no_error(run_chain):
    """Stderr of the successful start and first turn is not quoted."""
    run = agent("--back", "resume", "--stderr-bytes", 2000)
    editor = run_chain({"run": run, "name": "agent"}, log="info")
    editor.open()
    editor.wait_log("line=")
    assert editor.ask("echo x").endswith("x")

    error = error_of(editor.answer(editor.prompt("die 3")))

    assert "stderr" not in error["data"]
    assert editor.leave() == 0
