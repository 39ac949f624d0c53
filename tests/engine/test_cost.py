"""Costs of a message without a handler: no task switch, no work for what else is open."""

from __future__ import annotations

import sys

import pytest
import trio
from support.memory_chain import hops, running_chain, start
from trio.testing import wait_all_tasks_blocked

UPDATE = b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{}}}\n'
PASSING = [[], ["idle"], ["_proxy"], ["idle", "proxy", "tool starts"]]


class Steps(trio.abc.Instrument):
    count = 0

    def before_task_step(self, task):
        self.count += 1


class Calls:
    """Calls of functions of the conductor."""

    count = 0

    def __enter__(self):
        sys.setprofile(self.on_event)
        return self

    def __exit__(self, *exc_info):
        sys.setprofile(None)

    def on_event(self, frame, event, arg):
        if event == "call" and "/conductor/" in frame.f_code.co_filename:
            self.count += 1


@pytest.mark.parametrize("kinds", PASSING, ids=" ".join)
async def test_a_message_without_a_handler_costs_no_task_switch(kinds, autojump_clock):
    async with running_chain(hops(*kinds)) as harness:
        await start(harness)

        async def steps_for(data):
            steps = Steps()
            trio.lowlevel.add_instrument(steps)
            harness.agent.send_bytes(data)
            await wait_all_tasks_blocked()
            trio.lowlevel.remove_instrument(steps)
            return steps.count

        note = b'{"jsonrpc":"2.0","id":"q%d","method":"_x/ask","params":{}}\n'
        few, many = [UPDATE * n + note % n for n in (1, 100)]
        assert await steps_for(few) == await steps_for(many)


@pytest.mark.parametrize("kinds", [[], ["idle"], ["_proxy"]], ids=" ".join)
async def test_a_run_of_updates_without_a_handler_is_forwarded_as_one(kinds, autojump_clock):
    async with running_chain(hops(*kinds)) as harness:
        await start(harness)

        async def calls_for(count):
            with Calls() as calls:
                harness.agent.send_bytes(UPDATE * count)
                await wait_all_tasks_blocked()
            return calls.count

        assert await calls_for(110) - await calls_for(10) < 100  # not one for each line


@pytest.mark.parametrize("kinds", PASSING, ids=" ".join)
async def test_the_cost_of_a_message_does_not_grow_with_what_is_open(kinds, autojump_clock):
    """With sessions, and with requests of both sides."""
    async with running_chain(hops(*kinds)) as harness:
        await start(harness)
        client, agent = harness.client, harness.agent

        async def open_session(number):
            await harness.send(
                {"id": f"n{number}", "method": "session/new", "params": {"cwd": "/"}}
            )
            agent.answer(await agent.receive(), {"sessionId": f"s{number}"})
            client.send({"id": f"p{number}", "method": "session/prompt", "params": {}})
            agent.send({"id": f"q{number}", "method": "_x/ask", "params": {}})
            await client.receive_all()
            await agent.receive_all()

        async def calls_for_one_of_each():
            with Calls() as calls:
                agent.send_bytes(UPDATE + UPDATE)
                client.send({"id": "x", "method": "_x/ask", "params": {"sessionId": "s1"}})
                await wait_all_tasks_blocked()
                agent.answer(await agent.receive())
                await client.receive_all()
            return calls.count

        await open_session(1)
        await calls_for_one_of_each()  # what is done for the first one alone
        few = await calls_for_one_of_each()
        for number in range(2, 40):
            await open_session(number)
        assert await calls_for_one_of_each() == few
