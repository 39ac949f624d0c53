"""Lane rule 7 of `conductor.proxy` (`on_error`): a message when its handler fails."""

from __future__ import annotations

import pytest
import trio
from support.peers import port
from support.peers.port import Scripted, hop

from conductor.proxy import RequestError


class Passing(Scripted):
    on_error = "pass"


async def test_a_failure_answers_a_request_and_drops_a_notification():
    async def fail(self, params, forward):
        raise ExceptionGroup("both", [ValueError("a"), RequestError(-32123, "b")])

    async with hop(Scripted(fail)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        on_hop.client.send("_x", {"n": 2})
        on_hop.client.send("_other", {"n": 3})
        await on_hop.settle()

        assert on_hop.client.heard == [("answer", "_x", -32603)]
        assert on_hop.agent.heard == [("notification", "_other", {"n": 3})]
        assert on_hop.host.failures == []


async def fail_before(self, params, forward):
    raise ValueError("broken observer")


async def fail_after(self, params, forward):
    await forward()
    raise ValueError("broken observer")


@pytest.mark.parametrize("observer", [fail_before, fail_after])
async def test_on_error_pass_forwards_every_message_once(observer):
    async with hop(Passing(observer)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        on_hop.client.send("_x", {"n": 2})
        await on_hop.settle()
        on_hop.agent.answer("real")
        await on_hop.settle()

        assert [what[2] for what in on_hop.agent.heard] == [{"n": 1}, {"n": 2}]
        assert on_hop.client.heard == [("answer", "_x", "real")]


async def test_on_error_pass_does_not_repeat_a_request_in_flight():
    gate = trio.Event()

    async def fail_while_forwarding(self, params, forward):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(forward)
            await gate.wait()
            raise ValueError("broken observer")

    async with hop(Passing(fail_while_forwarding)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        gate.set()
        await on_hop.settle()

        assert [what[1] for what in on_hop.agent.heard] == ["_x"]
        assert on_hop.agent.cancelled == ["_x"]
        assert on_hop.client.heard == [("answer", "_x", -32603)]


async def test_an_exception_keeps_its_session_and_place_for_the_log(logged):
    async def fail(self, params, forward):
        raise ValueError("x")

    async with hop(Scripted(fail)) as on_hop:
        on_hop.client.send("_x", {"n": 1, "sessionId": "s-1"})
        await on_hop.settle()

    fields = dict(next(fields for event, fields in logged if event == "handler failed"))
    assert isinstance(fields.pop("exc_info"), ValueError)
    assert fields.pop("handler").startswith(f"{port.__file__}:")
    assert fields == {"component": "hop", "plugin": "Scripted", "method": "_x", "session": "s-1"}
