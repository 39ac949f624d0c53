"""A plugin that does not end does not keep the process alive."""

import json
import re
import signal
import socket
import tempfile
import time
from contextlib import ExitStack

import pytest
from support.peers.process import conversation, encoded, is_running

PLUGIN = """
import subprocess
import sys
import time

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

    async def swallowing(self):
        while True:
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                pass
"""
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


def assert_given_up(editor):
    (line,) = [line for line in editor.log if "plugin did not end, given up" in line]
    assert "busy.py:" in line
    assert "method=session/prompt plugin=Busy" in line
    (seconds,) = re.findall(r"seconds=([0-9.]+)", line)  # since the stop began
    assert float(seconds) < LIMIT


@pytest.mark.parametrize("how", [pytest.param("thread", marks=pytest.mark.fast), "swallowing"])
def test_after_eof_the_prompt_is_answered_and_the_process_ends(busy, how):
    editor, prompt = busy(how)
    children = editor.components

    editor.close_stdin()

    (answer,) = [message for message in editor.rest() if message.get("id") == prompt]
    assert answer["error"]["message"] == "The chain ended before this was answered"
    assert editor.wait() == 0
    assert not any(map(is_running, children))
    assert_given_up(editor)


def test_a_signal_ends_the_process_while_a_plugin_is_busy(busy):
    editor, prompt = busy("shielded")

    editor.signal(signal.SIGTERM)

    assert prompt in [message.get("id") for message in editor.rest()]
    assert editor.wait() == 128 + signal.SIGTERM
    assert_given_up(editor)


def test_a_second_signal_ends_the_process_at_once(busy):
    editor, _ = busy("shielded", "1m")

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


@pytest.fixture
def served(start, tmp_path, chain_file):
    """A server, and a client whose plugin is busy in this way."""
    (tmp_path / "busy.py").write_text(PLUGIN)
    use = {"use": f"{tmp_path}/busy.py:Busy", "stop_timeout": "300ms"}
    chain = chain_file({"use": "test-agent", "stop_timeout": "300ms"}, use)
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp"))  # a short path
        client = stack.enter_context(socket.socket(socket.AF_UNIX))

        def served(how):
            editor = start("serve", str(chain), "--listen", f"unix:{directory}/s")
            editor.wait_log("listening on")
            client.connect(f"{directory}/s")
            with client.makefile("rb") as lines:
                client.sendall(b"".join(map(encoded, conversation(how)[:2])))
                answers = [json.loads(lines.readline()) for _ in range(2)]
            prompt = conversation(how)[2]
            prompt["params"]["sessionId"] = answers[1]["result"]["sessionId"]
            client.sendall(encoded(prompt))
            editor.wait_log("at work")
            return editor, client

        yield served


@pytest.mark.parametrize("how", ["shielded", "blocking"])
def test_serve_ends_at_a_second_signal(served, how):
    editor, _ = served(how)

    editor.signal(signal.SIGTERM)
    if how != "blocking":
        editor.wait_log("draining")
    editor.signal(signal.SIGINT)

    assert editor.wait() in (128 + signal.SIGTERM, 128 + signal.SIGINT)


def test_serve_releases_a_client_whose_plugin_does_not_end(served):
    editor, client = served("thread")

    client.close()

    editor.wait_log("plugin did not end, given up")
    editor.wait_log("client disconnected")
    editor.signal(signal.SIGTERM)
    assert editor.wait() == 128 + signal.SIGTERM
