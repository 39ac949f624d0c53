"""A plugin that blocks the event loop is logged with its line, and does not keep the process
alive."""

import signal
import time

import pytest
from support.peers.process import agent

PLUGIN = """
import re
import subprocess
import sys
import time

import trio

from conductor.proxy import Proxy, on


class Notes(Proxy):
    @on("session/prompt")
    async def prompt(self, params: dict, forward):
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        print("at work", file=sys.stderr, flush=True)
        await getattr(self, params["prompt"][0]["text"])()
        return await forward()

    @on("_quick")
    async def quick(self, params: dict, forward):
        return {}

    async def sleep(self):
        time.sleep(2)  # here

    async def block(self):
        time.sleep(1000)  # here

    async def match(self):
        re.match("(a+)+$", "a" * 60 + "b")  # here; keeps the interpreter lock

    async def compute(self):
        for _ in range(15):
            end = time.monotonic() + 0.1
            while time.monotonic() < end:
                pass
            await trio.sleep(0)

    async def hello(self):
        pass
"""
BLOCKED = "event loop is blocked"
KILLED = "event loop blocked: process killed"


@pytest.fixture
def notes(start_file, tmp_path):
    """A conductor with the plugin, and an open session."""
    (tmp_path / "notes.py").write_text(PLUGIN)

    def notes(**keys):
        use = {"use": f"{tmp_path}/notes.py:Notes", "stop_timeout": "300ms", **keys}
        editor = start_file(agent(), use)
        editor.open()
        return editor

    return notes


def lines(editor):
    return [line for line in editor.log if "event loop" in line]


def is_its_line(logged, tmp_path):
    source = PLUGIN.splitlines()
    here = [f"at={tmp_path}/notes.py:{n}" for n, text in enumerate(source, 1) if "# here" in text]
    return any(f"{place} " in f"{logged} " for place in here)


@pytest.mark.parametrize(("epoll", "isolate"), [("", False), ("off", True)])
def test_a_handler_that_blocks_is_logged_once_with_its_line(
    notes, tmp_path, monkeypatch, epoll, isolate
):
    monkeypatch.setenv("ACP_CONDUCTOR_EPOLL", epoll)
    editor = notes(isolate=isolate)

    editor.ask("sleep")
    editor.ask("hello")
    assert editor.leave() == 0

    (line,) = lines(editor)
    assert BLOCKED in line
    assert is_its_line(line, tmp_path)


def test_a_handler_that_yields_is_not_logged(notes):
    editor = notes()

    editor.ask("compute")
    assert editor.leave() == 0

    assert lines(editor) == []


def test_a_stopped_conductor_blocks_nothing(notes):
    editor = notes()
    editor.signal(signal.SIGSTOP)
    time.sleep(2)
    editor.signal(signal.SIGCONT)

    editor.ask("hello")
    assert editor.leave() == 0

    assert lines(editor) == []


@pytest.mark.parametrize("how", ["block", "match"])
def test_a_blocked_loop_ends_the_process_after_eof(notes, tmp_path, how):
    editor = notes()
    editor.prompt(how)
    editor.wait_log("at work")

    editor.close_stdin()

    assert editor.wait() == 1
    assert is_its_line(editor.wait_log(KILLED), tmp_path)


def test_after_a_signal_what_is_answered_is_written_before_the_process_is_ended(notes):
    """Both handlers run in one step of the lane; the first one's answer is not written yet."""
    editor = notes()
    block = {"sessionId": "s1", "prompt": [{"type": "text", "text": "block"}]}
    editor.send(
        {"id": "q", "method": "_quick", "params": {}},
        {"id": "b", "method": "session/prompt", "params": block},
    )
    editor.wait_log("at work")

    editor.signal(signal.SIGTERM)

    assert [m["id"] for m in editor.rest()] == ["q"]
    assert editor.wait() == 128 + signal.SIGTERM


def test_a_second_signal_ends_the_process_at_once(notes):
    editor = notes(stop_timeout="1m")
    editor.prompt("block")
    editor.wait_log("at work")

    editor.signal(signal.SIGTERM)
    editor.signal(signal.SIGINT)

    # The one that is seen first; the first one alone would take a minute.
    assert editor.wait() in (128 + signal.SIGTERM, 128 + signal.SIGINT)
