"""A stop takes as long as handlers make progress; only one that blocks ends the process."""

import signal
import threading

import pytest
from support.peers.process import agent, wait_until_idle

PLUGIN = """
import sys
import time
from conductor.proxy import Proxy, on


class Slow(Proxy):
    @on("_hang")
    async def hang(self, params: dict, forward):
        try:
            return await forward()
        finally:
            time.sleep(0.01)

    @on("_quick")
    async def quick(self, params: dict, forward):
        return {}

    @on("_block")
    async def block(self, params: dict, forward):
        print("at work", file=sys.stderr, flush=True)
        time.sleep(params["seconds"])
        return {}
"""


@pytest.fixture
def slow(start_file, tmp_path):
    """A conductor with this plugin, and an agent that does not answer `_hang`."""
    (tmp_path / "slow.py").write_text(PLUGIN)
    use = {"use": f"{tmp_path}/slow.py:Slow", "stop_timeout": "300ms"}
    editor = start_file(agent("--hang-on", "_hang"), use)
    editor.open()
    return editor


def test_handlers_that_end_one_after_the_other_may_take_longer_than_the_timeout(slow):
    """300 handlers, of 10 ms each, end in one turn of the event loop: 3 s; the timeout is 1."""
    requests = [{"id": f"h{number}", "method": "_hang", "params": {}} for number in range(300)]
    slow.send(*requests)
    wait_until_idle(slow.pid)

    slow.close_stdin()

    assert sorted(m["id"] for m in slow.rest()) == sorted(each["id"] for each in requests)
    assert slow.wait() == 0


def test_time_in_which_the_process_is_stopped_does_not_count(slow):
    """It is stopped for 2 s after EOF, while a handler blocks the loop for half a second."""
    request = slow.request("_block", seconds=0.5)
    slow.wait_log("at work")
    slow.close_stdin()

    slow.signal(signal.SIGSTOP)
    threading.Event().wait(2)
    slow.signal(signal.SIGCONT)

    assert [m["id"] for m in slow.rest()] == [request]
    assert slow.wait() == 0


def test_what_is_answered_is_written_before_the_process_is_ended(slow):
    """Both handlers run in one step of the lane; the first one's answer is not written yet."""
    quick, block = {"id": "q", "method": "_quick"}, {"id": "b", "method": "_block"}
    slow.send(quick | {"params": {}}, block | {"params": {"seconds": 1000}})
    slow.wait_log("at work")

    slow.close_stdin()

    assert [m["id"] for m in slow.rest()] == ["q"]
    assert slow.wait() == 1
    slow.wait_log("event loop blocked: process killed")
