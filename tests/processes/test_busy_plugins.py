"""A plugin that does not end, or blocks the event loop, does not keep the process alive."""

import json
import re
import resource
import signal
import socket
import tempfile
import time
from contextlib import ExitStack

import psutil
import pytest
from support.peers.process import conversation, encoded, is_running

PLUGIN = """
import re
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import trio

from conductor.proxy import Proxy, on


class Busy(Proxy):
    @on("session/prompt")
    async def prompt(self, params: dict, forward):
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        how = params["prompt"][0]["text"]
        await self.client.say(params["sessionId"], "busy")
        print("at work", file=sys.stderr, flush=True)
        self.release_lane()
        await getattr(self, how)()

    async def thread(self):
        await trio.to_thread.run_sync(time.sleep, 1000)

    async def shielded(self):
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

    async def blocking(self):
        await trio.sleep(0)
        time.sleep(1000)

    async def computing(self):
        await trio.sleep(0)
        while True:
            pass

    async def matching(self):
        await trio.sleep(0)
        re.match("(a+)+$", "a" * 60 + "b")  # keeps the interpreter lock

    async def swallowing(self):
        while True:
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                pass

    async def own_thread(self):
        threading.Thread(target=time.sleep, args=(1000,)).start()
        await trio.sleep_forever()
"""
LOOP_GOES_ON = ("thread", "shielded", "swallowing", "own_thread")
LOOP_IS_BLOCKED = ("blocking", "computing")
LIMIT = 3.0
"""Seconds; the bound is 1 (`stop_timeout`, at least 1). Without it, it would be 3.9 or more."""


@pytest.fixture
def busy(start_file, tmp_path):
    """A conductor whose plugin is busy in this way, and the id of the prompt."""

    def busy(how, stop_timeout="300ms"):
        (tmp_path / "busy.py").write_text(PLUGIN)
        use = {"use": f"{tmp_path}/busy.py:Busy", "stop_timeout": stop_timeout}
        inner = {"use": "test-agent", "stop_timeout": stop_timeout}
        editor = start_file(inner, use)
        session = editor.open()
        prompt = editor.prompt(how, session)
        editor.next(lambda message: message.get("method") == "session/update")
        return editor, prompt

    return busy


def assert_given_up(editor, how):
    lines = [line for line in editor.log if "plugin did not end, given up" in line]
    if how == "own_thread":  # it is cancelled, and the thread keeps no process
        assert lines == []
        return
    (line,) = lines
    assert "busy.py:" in line
    assert "method=session/prompt plugin=Busy" in line
    assert logged_seconds(line) < LIMIT


def logged_seconds(line):
    """The seconds since the stop began, as the conductor has measured them."""
    (seconds,) = re.findall(r"seconds=([0-9.]+)", line)
    return float(seconds)


def cpu_seconds_of_ended_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize("how", [pytest.param("thread", marks=pytest.mark.fast), *LOOP_GOES_ON[1:]])
def test_after_eof_the_prompt_is_answered_and_the_process_ends(busy, how):
    editor, prompt = busy(how)
    children = editor.components

    editor.close_stdin()

    (answer,) = [message for message in editor.rest() if message.get("id") == prompt]
    assert answer["error"]["message"] == "The chain ended before this was answered"
    assert editor.wait() == 0
    assert not any(map(is_running, children))
    assert_given_up(editor, how)


@pytest.mark.parametrize("how", LOOP_GOES_ON)
def test_a_signal_ends_the_process_while_a_plugin_is_busy(busy, how):
    editor, prompt = busy(how)

    editor.signal(signal.SIGTERM)

    assert prompt in [message.get("id") for message in editor.rest()]
    assert editor.wait() == 128 + signal.SIGTERM
    assert_given_up(editor, how)


@pytest.mark.parametrize(("how", "end"), [("blocking", "client"), ("computing", "signal")])
def test_a_blocked_event_loop_does_not_keep_the_process_alive(busy, how, end):
    editor, _ = busy(how)

    if end == "client":
        editor.close_stdin()
    else:
        editor.signal(signal.SIGTERM)

    assert editor.wait() == (1 if end == "client" else 128 + signal.SIGTERM)
    line = editor.wait_log("event loop blocked: process killed")
    assert "busy.py:" in line
    assert "method=session/prompt plugin=Busy" in line
    assert logged_seconds(line) < LIMIT


@pytest.mark.parametrize("end", ["client", "signal"])
def test_a_regular_expression_that_backtracks_does_not_keep_the_process_alive(busy, end):
    editor, _ = busy("matching")

    before = sum(psutil.Process(editor.pid).cpu_times()[:2])
    reaped = cpu_seconds_of_ended_children()
    if end == "client":
        editor.close_stdin()
        assert editor.wait() == 1
    else:
        editor.signal(signal.SIGTERM)
        assert editor.wait() == 128 + signal.SIGTERM
    # It computes all the time: on a busy machine it gets less CPU time, not more.
    assert cpu_seconds_of_ended_children() - reaped - before < LIMIT
    lines = [line for line in editor.log if "event loop blocked: process killed" in line]
    assert len(lines) == 1
    assert "busy.py:" in lines[0]
    assert "method=session/prompt plugin=Busy" in lines[0]


@pytest.mark.parametrize("how", [*LOOP_IS_BLOCKED, "shielded"])
def test_a_second_signal_ends_the_process_at_once(busy, how):
    editor, _ = busy(how, "1m")

    begin = time.monotonic()
    editor.signal(signal.SIGTERM)
    editor.signal(signal.SIGINT)

    assert editor.wait() in (
        128 + signal.SIGTERM,
        128 + signal.SIGINT,
    )  # the one that is seen first
    assert time.monotonic() - begin < 30  # the first one alone would take a minute


@pytest.mark.parametrize("how", ["shielded", "blocking"])
def test_the_prompt_command_ends_although_a_plugin_is_busy(start, tmp_path, chain_file, how):
    (tmp_path / "busy.py").write_text(PLUGIN)
    use = {"use": f"{tmp_path}/busy.py:Busy", "stop_timeout": "300ms"}
    chain = chain_file({"use": "test-agent", "stop_timeout": "300ms"}, use)
    editor = start("prompt", "--permissions", "deny", str(chain), how)
    editor.wait_log("at work")

    editor.signal(signal.SIGTERM)
    editor.signal(signal.SIGTERM)

    assert editor.wait() == 128 + signal.SIGTERM


@pytest.mark.parametrize("how", ["shielded", "swallowing", "blocking"])
def test_serve_ends_at_a_second_signal(start, tmp_path, chain_file, how):
    (tmp_path / "busy.py").write_text(PLUGIN)
    use = {"use": f"{tmp_path}/busy.py:Busy", "stop_timeout": "300ms"}
    chain = chain_file({"use": "test-agent", "stop_timeout": "300ms"}, use)
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:  # short enough for a socket's path
        editor = start("serve", str(chain), "--listen", f"unix:{directory}/s")
        editor.wait_log("listening on")
        with ExitStack() as stack:
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(f"{directory}/s")
            lines = stack.enter_context(client.makefile("rb"))
            client.sendall(b"".join(map(encoded, conversation(how)[:2])))
            answers = [json.loads(lines.readline()) for _ in range(2)]
            assert [answer["id"] for answer in answers] == [1, 2]
            prompt = conversation(how)[2]
            prompt["params"]["sessionId"] = answers[1]["result"]["sessionId"]
            client.sendall(encoded(prompt))
            editor.wait_log("at work")

            editor.signal(signal.SIGTERM)
            if how != "blocking":
                editor.wait_log("draining")
            editor.signal(signal.SIGINT)

            assert editor.wait() in (128 + signal.SIGTERM, 128 + signal.SIGINT)


def test_serve_releases_a_client_whose_plugin_does_not_end(start, tmp_path, chain_file):
    (tmp_path / "busy.py").write_text(PLUGIN)
    use = {"use": f"{tmp_path}/busy.py:Busy", "stop_timeout": "300ms"}
    chain = chain_file({"use": "test-agent", "stop_timeout": "300ms"}, use)
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:  # short enough for a socket's path
        editor = start("serve", str(chain), "--listen", f"unix:{directory}/s")
        editor.wait_log("listening on")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"{directory}/s")
            with client.makefile("rb") as lines:
                client.sendall(b"".join(map(encoded, conversation("thread")[:2])))
                answers = [json.loads(lines.readline()) for _ in range(2)]
                prompt = conversation("thread")[2]
                prompt["params"]["sessionId"] = answers[1]["result"]["sessionId"]
                client.sendall(encoded(prompt))
                editor.wait_log("at work")

        editor.wait_log("plugin did not end, given up")
        editor.wait_log("client disconnected")
        editor.signal(signal.SIGTERM)

        assert editor.wait() == 128 + signal.SIGTERM
