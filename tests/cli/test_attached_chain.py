"""`try` and `trace replay` end although a plugin is stuck, and name it and its handler."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest
from support.peers.process import PATIENCE

pytestmark = pytest.mark.slow

STUCK = """
import sys
import time

import trio

from conductor.proxy import Proxy, on_prompt


class Stuck(Proxy):
    @on_prompt
    async def handle(self, session, prompt, forward):
        print("it hangs", file=sys.stderr, flush=True)
        {how}
"""
HOW = {
    "shielded": "with trio.CancelScope(shield=True): await trio.sleep_forever()",
    "blocking": "time.sleep(1000)",
    "computing": "while True: pass",
}
GIVEN_UP = "plugin did not end, given up"
KILLED = "event loop blocked: process killed"


@pytest.fixture
def command(tmp_path, chain_file):
    """The arguments of `try` or `trace replay` with a proxy that is stuck in this way."""

    def command(name, how, *options):
        (tmp_path / "stuck.py").write_text(STUCK.format(how=HOW[how]))
        if name == "try":
            return ["try", "stuck.py", *options]
        chain = chain_file("proxies:\n  - use: ./stuck.py:Stuck\n    stop_timeout: 1s\n")
        return ["trace", "replay", "opencode", "--through", chain, *options]

    return command


@pytest.fixture
def start(tmp_path):
    """Start a command, and wait until the proxy hangs."""
    started = []

    def start(arguments):
        process = subprocess.Popen(
            [sys.executable, "-m", "conductor", *map(str, arguments)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        started.append(process)
        for line in process.stderr:
            if "it hangs" in line:
                return process
        raise AssertionError(f"ended with {process.wait()}")

    yield start
    for process in started:
        process.kill()
        process.communicate()


def assert_named(log, event):
    (line,) = [line for line in log.splitlines() if event in line]
    if event == KILLED:
        assert re.search(r"at=\S*stuck.py:\d+ ", line)
    else:
        assert re.search(r"handler=\S*stuck.py:11 method=session/prompt plugin=Stuck", line)
    (seconds,) = re.findall(r"seconds=([0-9.]+)", line)
    assert float(seconds) < 8  # the longest time is 5: of `try`, for a blocked event loop


@pytest.mark.parametrize(
    ("name", "how", "event"),
    [
        ("try", "shielded", GIVEN_UP),
        ("replay", "computing", KILLED),
    ],
)
def test_ctrl_c_ends_a_command_whose_plugin_is_stuck(command, start, name, how, event):
    process = start(command(name, how))

    process.send_signal(signal.SIGINT)

    _, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGINT
    assert_named(log, event)


def test_a_second_ctrl_c_ends_it_at_once(command, start):
    process = start(command("try", "shielded"))

    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)

    process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGINT


@pytest.mark.parametrize(("name", "how"), [("try", "blocking"), ("replay", "computing")])
def test_a_blocked_event_loop_ends_the_command_by_itself(command, run, name, how):
    result = run(*command(name, how))

    assert result.returncode == 1
    assert_named(result.stderr, KILLED)


@pytest.mark.parametrize("name", ["try", "replay"])
def test_a_handler_that_does_not_end_has_a_time_limit(command, run, name):
    result = run(*command(name, "shielded", "--timeout", "0.5"))

    assert result.returncode == 1
    assert_named(result.stderr, GIVEN_UP)
    if name == "try":
        assert "no end of the turn (--timeout) within 0.5 s\n" in result.stdout
        assert "  Stuck is busy in stuck.py:11, with session/prompt\n" in result.stdout
