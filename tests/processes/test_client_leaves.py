"""The client closes stdin or stops reading: messages in flight are delivered, everything ends."""

import time

import psutil
import pytest
from support.peers.process import (
    agent,
    chunk,
    conversation,
    encoded,
    proxy,
    python,
    wait_until_idle,
    words,
)


def wrapped(*command, flags=()):
    """A program that starts the real agent as its child, as npx does."""
    return python("wrapper.py", *flags, *command)


@pytest.mark.parametrize(("proxies", "newline"), [(0, b"\n"), (3, b"")])
def test_everything_that_was_asked_before_the_end_is_answered(start_agent, proxies, newline):
    names = [f"p{number}" for number in range(proxies)]
    editor = start_agent(*map(proxy, names), agent())

    editor.write(b"".join(map(encoded, conversation("echo hello"))).rstrip(b"\n") + newline)
    editor.close_stdin()

    initialized, opened, reply, ended = editor.rest()
    assert (initialized["id"], initialized["result"]["protocolVersion"]) == (1, 1)
    assert opened["result"] == {"sessionId": "s1"}
    forward, back = (
        "".join(f"[{name}]" for name in reversed(names)),
        "".join(f"{n}>" for n in names),
    )
    assert chunk(reply) == f"{back}{forward}hello"
    assert ended["result"] == {"stopReason": "end_turn"}
    assert editor.wait() == 0


def test_a_long_stream_is_delivered_to_its_end(start_agent):
    editor = start_agent(proxy("p"), agent())
    editor.open()
    prompt = editor.prompt("stream 2000 1000")
    editor.close_stdin()

    *updates, ended = editor.rest()

    assert [chunk(update)[5:13] for update in updates] == [
        f"{number:08d}" for number in range(2000)
    ]
    assert (ended["id"], ended["result"]) == (prompt, {"stopReason": "end_turn"})
    assert editor.wait() == 0


@pytest.mark.fast
def test_components_are_given_the_time_to_end_by_themselves(start):

    editor = start("--log", "debug", "agent", *words(proxy("a"), agent()))
    editor.open()

    assert editor.leave() == 0
    ended = [line for line in editor.log if "component ended" in line]
    assert len(ended) == 2
    assert all("exited with status 0" in line for line in ended)


@pytest.mark.parametrize(
    ("ignored", "status"),
    [(["--ignore-eof"], "SIGTERM"), (["--ignore-eof", "--ignore-term"], "SIGKILL")],
)
def test_an_agent_that_ignores_eof_is_terminated(start, chain_file, ignored, status):
    stubborn = {"name": "stubborn", "run": agent(*ignored)}
    path = chain_file(stubborn, {"run": proxy("a")})
    editor = start("--log", "debug", "run", str(path))
    editor.open()
    began = time.monotonic()

    assert editor.leave() == 0
    assert time.monotonic() - began < 15
    (ended,) = (line for line in editor.log if "component ended" in line and "stubborn" in line)
    assert f"was ended by {status}" in ended


def test_grandchildren_of_a_stubborn_agent_end(start_file):
    flags = ("--fork-child", "session", "--ignore-eof", "--ignore-term")
    editor = start_file({"run": agent(*flags)})
    editor.open()
    grandchild = psutil.Process(int(editor.wait_log("child ").rstrip("'").split()[-1]))

    assert editor.leave() == 0
    assert not grandchild.is_running()


def test_the_agent_behind_a_wrapper_ends_with_it(start_file):
    stubborn = agent("--ignore-eof", "--ignore-term")
    editor = start_file({"run": wrapped(*stubborn, flags=("--new-session",))}, proxy("p"))
    editor.open()
    assert editor.ask("echo hello") == "p>[p]hello"

    assert editor.leave() == 0


def test_a_component_stopped_by_sigstop_is_killed(start_file):
    editor = start_file({"run": agent()})
    editor.open()
    editor.components[0].suspend()

    assert editor.leave() == 0


def test_a_client_that_closes_its_stdout_is_treated_as_disconnected(start_agent):
    editor = start_agent(proxy("p"), agent())
    editor.open()
    editor.process.stdout.close()

    editor.prompt("stream 100 100000")

    assert editor.wait() == 0
    assert not [line for line in editor.log if "Traceback" in line]


def test_a_client_that_is_killed_in_the_middle_of_a_flood_leaves_nothing(start_agent):
    editor = start_agent(proxy("p"), agent())
    editor.open()
    editor.prompt("stream 1000 100000")
    assert editor.read_bytes()

    editor.process.stdout.close()

    assert editor.leave() == 0


SILENT = {"run": python("pass_proxy.py", "--wrong", "silent", "--dialect", "_proxy")}
"""A proxy that never answers its initialization, in the dialect that it is asked in first."""


def test_a_client_killed_during_the_start_ends_the_chain_at_once(start):
    editor = start("agent", *words(SILENT["run"], agent()))  # with a stop_timeout of 5 s
    editor.request("initialize", protocolVersion=1)
    wait_until_idle(editor.pid)
    began = time.monotonic()
    editor.process.stdout.close()

    assert editor.leave() == 3
    assert time.monotonic() - began < 4
