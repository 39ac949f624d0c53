"""A component dies with requests in flight: each is answered once, and no message is lost."""

from signal import SIGKILL

import pytest
from support.peers.process import agent, chunk, proxy, running_below


def fatal(command, **keys):
    """A component without which the chain ends."""
    return {"run": command, "on_failure": "end_chain", **keys}


@pytest.mark.fast
def test_messages_written_before_the_death_are_delivered_before_the_error(start_file):
    editor = start_file(fatal(agent()), proxy("p"))
    editor.open()
    streaming = editor.prompt("stream 500 2000")
    deadly = editor.prompt("die 3")

    *updates, ended, died = editor.rest()

    assert [chunk(update)[5:13] for update in updates] == [f"{number:08d}" for number in range(500)]
    assert (ended["id"], ended["result"]) == (streaming, {"stopReason": "end_turn"})
    assert (died["id"], died["error"]["data"]["exitStatus"]) == (deadly, "exited with status 3")
    assert editor.wait() == 1


def test_an_incomplete_last_line_is_not_delivered(start_file):
    half = 'printf \'{"jsonrpc":"2.0","method":"session/upd\'; kill -9 $$$$'
    lines = 'read line; echo \'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}\''
    editor = start_file(fatal(["/bin/sh", "-c", f"{lines}; read line; {half}"]))
    assert "result" in editor.initialize()
    request = editor.request("session/new")

    (answer,) = editor.rest()

    assert (answer["id"], answer["error"]["data"]["exitStatus"]) == (
        request,
        "was ended by SIGKILL",
    )
    assert editor.wait() == 1


@pytest.mark.fast
@pytest.mark.parametrize("victim", [1, 2])
def test_any_component_that_is_killed_is_named(start_file, victim):
    first, second = fatal(proxy("a"), name="first"), fatal(proxy("b"), name="second")
    editor = start_file(fatal(agent(), name="third"), first, second)
    editor.open()
    prompt = editor.prompt("wait")
    editor.next(chunk)

    editor.components[victim].send_signal(SIGKILL)

    (answer,) = [message for message in editor.rest() if "id" in message]
    assert answer["id"] == prompt
    assert answer["error"]["data"]["component"] == ["first", "second", "third"][victim]
    assert answer["error"]["message"].startswith(
        f"component '{['first', 'second', 'third'][victim]}' was ended by SIGKILL"
    )
    assert editor.wait() == 1


def test_an_agent_that_exits_with_status_0_is_lost_too(start_file):
    editor = start_file(fatal(agent("--close-stdout-on", "session/prompt")))
    editor.open()

    error = editor.answer(editor.prompt("echo hello"))["error"]

    assert error["message"].startswith("component 'misbehave' closed its stdout")
    assert editor.rest() == []
    assert editor.wait() == 1


def test_a_lost_component_with_nothing_in_flight_ends_the_chain(start_file):
    editor = start_file(fatal(agent("--fork-child", "session")), proxy("p"))
    editor.open()

    editor.components[-1].send_signal(SIGKILL)

    [told] = editor.rest()
    assert told["params"]["update"]["content"]["text"].endswith("; the chain ends\n\n")
    assert editor.wait() == 1
    assert running_below() == []


def test_requests_sent_to_a_dead_agent_are_answered(start_file):
    """Requests in flight at its end: it is unknown whether they were read."""
    editor = start_file(fatal(agent("--exit-on", "session/prompt", "--status", "4")))
    editor.open()
    prompts = [editor.prompt("echo hello") for _ in range(50)]

    answers = editor.rest()

    assert sorted(answer["id"] for answer in answers) == prompts
    assert {answer["error"]["data"]["exitStatus"] for answer in answers} == {"exited with status 4"}
    assert editor.wait() == 1
