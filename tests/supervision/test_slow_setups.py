"""The monitor of slow session set-ups on a virtual clock."""

from __future__ import annotations

import pytest
import trio
from routing.test_link import Bench

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.supervision.slow_setups import SlowSetup, SlowSetupMonitor

NEW = b'{"cwd":"/","mcpServers":[{"name":"files","command":"x"},{"name":"web","type":"http"}]}'
FORWARDED = (
    b'{"jsonrpc":"2.0","id":7,"method":"proxy/successor",'
    b'"params":{"method":"session/new","params":{"cwd":"/","mcpServers":[]}}}\n'
)


class Monitored:
    """A link with a monitor."""

    def __init__(self, role):
        self.slow = []
        self.bench = Bench(role)
        self.monitor = SlowSetupMonitor(self.slow.append)
        self.monitor.observe(self.bench.link)

    def send(self, method, params=NEW):
        call = InFlightRequest(method, self.bench.before)
        self.bench.link.plain.request(call, method, params)


@pytest.fixture
async def monitored(nursery):
    async def start(role):
        made = Monitored(role)
        nursery.start_soon(made.monitor.run)
        await trio.testing.wait_all_tasks_blocked()
        return made

    return start


async def test_a_set_up_is_named_once_after_two_seconds(monitored, autojump_clock):
    agent = await monitored("agent")
    agent.send("session/new")
    await trio.sleep(1.9)
    assert agent.slow == []
    await trio.sleep(5)

    assert agent.slow == [SlowSetup("session/new", None, ["files", "web"])]


async def test_the_session_of_a_load_is_told(monitored, autojump_clock):
    agent = await monitored("agent")
    agent.send("session/load", b'{"sessionId":"s","cwd":"/"}')
    await trio.sleep(3)

    assert agent.slow == [SlowSetup("session/load", "s", [])]


async def test_other_requests_and_answered_set_ups_are_not_slow(monitored, autojump_clock):
    agent = await monitored("agent")
    agent.send("session/new")
    [sent] = agent.bench.written()
    agent.bench.feed({"id": sent["id"], "result": {"sessionId": "s"}})
    agent.send("session/prompt", b'{"sessionId":"s","prompt":[]}')
    await trio.sleep(5)

    assert agent.slow == []


async def test_a_proxy_that_waits_for_its_successor_is_not_slow(monitored, autojump_clock):
    proxy = await monitored("proxy")
    proxy.send("session/new")
    proxy.bench.link.connection.feed(FORWARDED)
    await trio.sleep(5)
    assert proxy.slow == []

    proxy.bench.link.enveloped.respond(proxy.bench.behind.calls[-1], b"{}", None)
    await trio.sleep(1.9)
    assert proxy.slow == []
    await trio.sleep(1)
    assert len(proxy.slow) == 1
