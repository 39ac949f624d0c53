"""A handler that blocks the event loop is logged, once, with its place."""

import re
import signal
import time

import pytest
from support.peers.process import agent

PLUGIN = """
import re
import subprocess
import time

import trio

from conductor.proxy import Proxy, on


class Notes(Proxy):
    @on("session/prompt")
    async def prompt(self, params: dict, forward):
        how = params["prompt"][0]["text"]
        await getattr(self, how)()
        return await forward()

    async def sleep(self):
        time.sleep(1.5)  # here

    async def run(self):
        subprocess.run(["sleep", "1.5"])  # here

    async def match(self):
        begin, length, taken = time.process_time(), 18, 0
        while time.process_time() < begin + 1.5:
            length += taken < 0.4  # else the last one could take 5 s on a busy machine
            started = time.process_time()
            re.match("(a+)+$", "a" * length + "b")  # here
            taken = time.process_time() - started

    async def pause(self):
        await trio.sleep(1.5)

    async def compute(self):
        for _ in range(15):
            end = time.monotonic() + 0.1
            while time.monotonic() < end:
                pass
            await trio.sleep(0)

    async def hello(self):
        pass
"""
BLOCKED = " blocked "
"""`event loop was blocked`; on a busy machine, after 5 s, `event loop is blocked`."""


@pytest.fixture
def notes(start_file, tmp_path):
    """A conductor with the plugin, and an open session."""
    path = tmp_path / "notes.py"
    path.write_text(PLUGIN)

    def notes(**keys):
        editor = start_file(agent(), {"use": f"{path}:Notes", "name": "notes", **keys})
        editor.open()
        return editor

    return notes


def lines(editor):
    return [line for line in editor.log if "event loop" in line]


@pytest.mark.parametrize(
    ("how", "epoll", "isolate"),
    [
        ("sleep", "", False),
        ("sleep", "off", True),
        ("run", "", True),
        ("run", "off", False),
        ("match", "", False),
        ("match", "off", True),
    ],
)
def test_a_handler_that_blocks_is_logged_once_with_its_place(
    notes, tmp_path, monkeypatch, how, epoll, isolate
):
    monkeypatch.setenv("ACP_CONDUCTOR_EPOLL", epoll)
    editor = notes(isolate=isolate)

    editor.ask(how)
    line = editor.wait_log(BLOCKED)
    editor.ask("hello")
    assert editor.leave() == 0

    assert lines(editor) == [line]
    assert "plugin=notes" in line
    assert "method=session/prompt" in line
    source = PLUGIN.splitlines()
    here = [f"at={tmp_path}/notes.py:{n}" for n, text in enumerate(source, 1) if "# here" in text]
    assert any(f"{place} " in line + " " for place in here)
    assert f"handler={tmp_path}/notes.py:" in line
    (seconds,) = re.findall(r"seconds=([0-9.]+)", line)
    assert float(seconds) >= 0.5


@pytest.mark.parametrize("how", ["pause", "compute"])
def test_a_handler_that_waits_or_yields_is_not_logged(notes, how):
    editor = notes()

    editor.ask(how)
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


def test_prompt_logs_a_blocking_that_ends_with_the_turn(start, chain_file, tmp_path):
    (tmp_path / "notes.py").write_text(PLUGIN)
    chain = chain_file(agent(), {"use": f"{tmp_path}/notes.py:Notes", "name": "notes"})
    editor = start("prompt", "--permissions", "deny", str(chain), "sleep")

    assert editor.wait() == 0

    (line,) = lines(editor)
    assert BLOCKED in line
    assert f"at={tmp_path}/notes.py:" in line
