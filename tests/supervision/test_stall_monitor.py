"""The monitor of silent turns on a virtual clock: batches, and requests of the component."""

from __future__ import annotations

import pytest
import trio
from routing.test_link import Bench

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.supervision.stall_detector import StallDetector
from conductor.supervision.stall_monitor import StallMonitor

UPDATE = (
    b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":'
    b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}}}\n'
)
READ_FILE = b'{"jsonrpc":"2.0","id":7,"method":"fs/read_text_file","params":{"sessionId":"s"}}\n'


class Monitored:
    """An agent's link with a stall timeout of 10 s and an open prompt."""

    def __init__(self):
        self.overdue = []
        self.version = 1
        self.bench = Bench("agent")
        self.monitor = StallMonitor(
            StallDetector(stall_timeout=10.0), lambda: self.version == 2, self.overdue.append
        )
        self.monitor.observe(self.bench.link)
        self.prompt = InFlightRequest("session/prompt", self.bench.before)

    def send_prompt(self):
        params = b'{"sessionId":"s","prompt":[]}'
        self.bench.link.plain.request(self.prompt, "session/prompt", params)

    def feed(self, data):
        self.bench.link.connection.feed(data)


@pytest.fixture
async def monitored(nursery):
    monitored = Monitored()
    nursery.start_soon(monitored.monitor.run)
    await trio.testing.wait_all_tasks_blocked()
    monitored.send_prompt()
    return monitored


@pytest.mark.parametrize("updates", [1, 3])
async def test_updates_alone_and_in_a_run_postpone_the_stall(monitored, updates, autojump_clock):
    await trio.sleep(9)
    monitored.feed(UPDATE * updates)
    await trio.sleep(9)
    assert monitored.overdue == []
    await trio.sleep(2)
    assert [each.session for each in monitored.overdue] == ["s"]


async def test_silence_while_a_request_of_the_component_is_open_is_no_stall(
    monitored, autojump_clock
):
    monitored.feed(READ_FILE)
    await trio.sleep(60)
    assert monitored.overdue == []
    call = monitored.bench.before.calls[0]
    monitored.bench.link.plain.respond(call, b"{}", None)
    await trio.sleep(11)
    assert [each.session for each in monitored.overdue] == ["s"]


async def test_a_turn_that_was_answered_does_not_stall(monitored, autojump_clock):
    id = monitored.prompt.target_id
    monitored.feed(b'{"jsonrpc":"2.0","id":%d,"result":{"stopReason":"end_turn"}}\n' % id)
    await trio.sleep(60)
    assert monitored.overdue == []


async def test_an_agent_that_accepts_a_prompt_and_says_nothing_stalls(monitored, autojump_clock):
    monitored.version = 2
    id = monitored.prompt.target_id
    monitored.feed(b'{"jsonrpc":"2.0","id":%d,"result":{}}\n' % id)
    await trio.sleep(9)
    assert monitored.overdue == []
    await trio.sleep(2)
    assert [each.session for each in monitored.overdue] == ["s"]


async def test_a_prompt_that_is_refused_does_not_stall(monitored, autojump_clock):
    monitored.version = 2
    id = monitored.prompt.target_id
    error = b'{"code":-32000,"message":"log in"}'
    monitored.feed(b'{"jsonrpc":"2.0","id":%d,"error":%s}\n' % (id, error))
    await trio.sleep(60)
    assert monitored.overdue == []
