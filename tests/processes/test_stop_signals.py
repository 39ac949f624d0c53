"""A signal ends the conductor in order, a second one at once; SIGKILL leaves no component."""

import os
import random
import shlex
import threading
import time
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM

import psutil
import pytest
from support.peers.process import (
    CONDUCTOR,
    agent,
    chunk,
    conversation,
    is_guard,
    probe,
    proxy,
    python,
    running_below,
    words,
)

LONG = "1h"


@pytest.mark.parametrize(
    ("number", "code"),
    [pytest.param(SIGTERM, 143, marks=pytest.mark.fast), (SIGINT, 130), (SIGHUP, 129)],
)
def test_a_signal_ends_the_chain_in_order(start, number, code):
    editor = start("--log", "debug", "agent", *words(proxy("p"), agent()))
    editor.open()
    prompt = editor.prompt("wait")
    editor.next(chunk)

    editor.signal(number)

    (answer,) = editor.rest()
    assert (answer["id"], answer["result"]) == (prompt, {"stopReason": "cancelled"})
    assert editor.wait() == code
    ended = [line for line in editor.log if "component ended" in line]
    assert len(ended) == 2
    assert all("exited with status 0" in line for line in ended)


@pytest.mark.parametrize(("first", "second"), [(SIGTERM, SIGINT), (SIGINT, SIGINT)])
def test_a_second_signal_kills_now(start_file, first, second):
    editor = start_file({"run": probe("--stubborn"), "stop_timeout": LONG}, proxy("p"))
    editor.open()
    editor.signal(first)
    editor.wait_log("end of input")

    editor.signal(second)

    assert editor.wait() == 128 + first


def test_a_second_signal_does_not_wait_for_a_client_that_does_not_read(start_file):
    editor = start_file({"run": probe("--stubborn"), "stop_timeout": LONG}, proxy("p"))
    editor.open()
    editor.prompt("stream 10 100000")  # more than a pipe takes, less than slows the agent down
    editor.prompt("errors streamed\\n")
    editor.wait_log("streamed")
    editor.signal(SIGTERM)
    editor.wait_log("end of input")

    editor.signal(SIGTERM)

    assert editor.wait() == 143


@pytest.mark.parametrize("number", [SIGTERM, SIGINT])
def test_a_signal_before_initialize_ends_the_conductor(start, number):
    editor = start("--log", "debug", "agent", *words(agent()), forked=False)
    error = editor.answer(editor.request("session/new"))
    assert error["error"]["code"] == -32600

    editor.signal(number)

    assert editor.wait() == 128 + number


def test_a_signal_during_the_start_ends_the_conductor(start_agent):
    editor = start_agent(proxy("p"), agent("--hang-on", "initialize", "--fork-child"))
    initialize = editor.request("initialize", protocolVersion=1)
    editor.wait_log("child ")

    editor.signal(SIGTERM)

    (answer,) = editor.rest()
    assert (answer["id"], answer["error"]["code"]) == (initialize, -32603)
    assert editor.wait() == 143


def test_ctrl_c_in_a_terminal_reaches_only_the_conductor(start):
    """Components have process groups of their own; they end in order, not by SIGINT."""
    editor = start("--log", "debug", "agent", *words(proxy("p"), agent()), start_new_session=True)
    editor.open()

    os.killpg(editor.pid, SIGINT)

    assert editor.rest() == []
    assert editor.wait() == 130
    ended = [line for line in editor.log if "component ended" in line]
    assert all("exited with status 0" in line for line in ended)


@pytest.mark.fast
def test_components_die_with_a_conductor_that_is_killed(start_agent):
    stubborn = ("--ignore-eof", "--ignore-term")
    editor = start_agent(proxy("a"), proxy("b"), agent(*stubborn))
    editor.open()
    components = editor.components
    assert len(components) == 3

    editor.signal(SIGKILL)

    assert editor.process.wait(60) == -SIGKILL
    _, alive = psutil.wait_procs(components, 60)
    assert alive == []


def test_nested_components_die_with_a_conductor_that_is_killed(start_agent):

    nested = [
        *CONDUCTOR,
        "proxy",
        *words(proxy("a"), python("misbehave.py", "--proxy", "--ignore-eof")),
    ]
    editor = start_agent(nested, agent("--ignore-eof", "--ignore-term"))
    editor.open()
    below = running_below(editor.pid)
    assert len(below) == 4

    editor.signal(SIGKILL)

    editor.process.wait(60)
    _, alive = psutil.wait_procs(below, 60)
    assert alive == []


@pytest.mark.parametrize(
    "started", ["sleep 3600 &", "setsid sleep 3600 &", "env -i sleep 3600 &", "(sleep 3600 &);"]
)
def test_descendants_end_with_a_conductor_that_is_killed(start_agent, started):
    echo = shlex.join(agent())
    editor = start_agent(["sh", "-c", f"{started} {echo}; :"])
    editor.open()
    conductor = psutil.Process(editor.pid)
    below = conductor.children(recursive=True)
    assert [process.name() for process in below].count("sleep") == 1
    assert sum(map(is_guard, below)) == 1

    editor.signal(SIGKILL)

    editor.process.wait(60)
    _, alive = psutil.wait_procs(below, 60)
    assert alive == []


COMMANDS = """
from contextlib import asynccontextmanager

from conductor.proxy import Proxy
from conductor.proxy.commands import open_command


class Commands(Proxy):
    @asynccontextmanager
    async def lifespan(self):
        script = "setsid sleep 3600 & echo; exec sleep 3600"
        async with open_command(["sh", "-c", script]) as command:
            await command.read()
            yield
"""


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("number", [SIGTERM, SIGKILL])
def test_commands_of_a_proxy_end_with_the_conductor(start_file, tmp_path, number, isolate):
    (tmp_path / "commands.py").write_text(COMMANDS)
    editor = start_file(agent(), {"use": "./commands.py:Commands", "isolate": isolate})
    editor.open()
    below = psutil.Process(editor.pid).children(recursive=True)
    assert "sleep" in [process.name() for process in below]

    editor.signal(number)

    editor.process.wait(60)
    _, alive = psutil.wait_procs(below, 60)
    assert alive == []


def kill_at_random_moments(start_agent, kills):
    """Kill conductors whose component leaves children in its group, out of it, and without an
    environment: one before it starts programs, one when all run, the others in between."""
    leave = "(sleep 3600 &); (setsid sleep 3600 &); (env -i sleep 3600 &);"
    leaves = ["sh", "-c", f"{leave} {shlex.join(agent())}; :"]

    def started():
        return start_agent(proxy("p"), leaves, forked=False)

    def kill(editor):
        editor.signal(SIGKILL)
        editor.process.wait(60)
        _, alive = psutil.wait_procs(running_below(), 60)
        assert alive == []
        editor.close()

    editor = started()
    assert running_below(editor.pid) == []  # they start at `initialize`
    kill(editor)

    began, editor = time.monotonic(), started()
    editor.send(*conversation("wait"))
    editor.next(chunk)
    duration = time.monotonic() - began
    assert len(running_below(editor.pid)) == 6  # the proxy, a shell, its three children, the agent
    kill(editor)

    moment = random.Random(53)
    for _ in range(kills - 2):
        editor = started()
        editor.send(*conversation("wait"))
        threading.Event().wait(moment.random() * duration)  # as slow as this machine is now
        kill(editor)


def test_nothing_is_left_whenever_the_conductor_is_killed(start_agent):
    kill_at_random_moments(start_agent, 8)


@pytest.mark.long
def test_nothing_is_left_of_53_conductors_that_are_killed(start_agent):
    kill_at_random_moments(start_agent, 53)
