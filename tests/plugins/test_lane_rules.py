"""Lane rules 1 to 3 of `conductor.proxy`: order in a lane, waiting for a response, and after it."""

from __future__ import annotations

from typing import ClassVar

import trio
import trio.testing
from support.peers.port import Scripted, forward_unchanged, hop

from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.proxy import Agent, Proxy, on
from conductor.testing import open_chain

# -- rule 1 ----------------------------------------------------------------------------------------


async def test_unhandled_messages_keep_their_order_among_handled_ones():
    gate = trio.Event()

    async def wait(self, params, forward):
        await gate.wait()
        await forward()

    async with hop(Scripted(wait)) as on_hop:
        client, agent = on_hop.client, on_hop.agent
        client.send("_x", {"n": 1})
        client.send("_other", {"n": 2})
        client.ask("_ask", {"n": 3})
        await on_hop.settle()
        assert agent.heard == []

        gate.set()
        await on_hop.settle()

    assert [params["n"] for _, _, params in agent.heard] == [1, 2, 3]


async def test_the_two_lanes_do_not_wait_for_each_other():
    async def never(self, params, forward):
        await trio.sleep_forever()

    async with hop(Scripted(never, forward_unchanged)) as on_hop:
        on_hop.client.send("_x", {"n": 1})
        on_hop.agent.send("_x", {"n": 2})
        await on_hop.settle()

        assert on_hop.client.heard == [("notification", "_x", {"n": 2})]


async def test_an_answer_does_not_overtake_the_notification_before_it():
    gate = trio.Event()

    async def wait(self, params, forward):
        await gate.wait()
        await forward()

    async with hop(Scripted(None, wait)) as on_hop:
        on_hop.client.ask("_ask")
        on_hop.agent.send("_x", {"n": 1})
        on_hop.agent.answer("late")
        on_hop.agent.send("_after", {"n": 2})
        await on_hop.settle()
        assert on_hop.client.heard == []

        gate.set()
        await on_hop.settle()

        assert on_hop.client.heard == [
            ("notification", "_x", {"n": 1}),
            ("answer", "_ask", "late"),
            ("notification", "_after", {"n": 2}),
        ]


async def test_a_run_of_notifications_is_handled_one_by_one():
    gate = trio.Event()

    async def wait(self, params, forward):
        if params["n"] == 2:
            self.release_lane()
            await gate.wait()
        await forward()

    async with hop(Scripted(None, wait)) as on_hop:
        on_hop.component.agent_port.notify_batch(
            NotificationBatch("_x", [b'{"n":%d}' % n for n in range(1, 5)])
        )
        on_hop.agent.send("_y", {"n": 5})
        await on_hop.settle()
        assert [params["n"] for _, _, params in on_hop.client.heard] == [1, 3, 4, 5]

        gate.set()
        await on_hop.settle()

    assert [params["n"] for _, _, params in on_hop.client.heard] == [1, 3, 4, 5, 2]


# -- rule 2 ----------------------------------------------------------------------------------------


async def test_a_handler_that_waits_for_a_response_lets_the_next_message_in():
    async with hop(Scripted(forward_unchanged)) as on_hop:
        on_hop.client.ask("_x", {"n": 1}, name="first")
        on_hop.client.ask("_x", {"n": 2}, name="second")
        await on_hop.settle()
        assert [params["n"] for _, _, params in on_hop.agent.heard] == [1, 2]

        on_hop.agent.answer("b", which=1)
        on_hop.agent.answer("a")
        await on_hop.settle()

        assert on_hop.client.heard == [("answer", "second", "b"), ("answer", "first", "a")]


async def test_the_request_is_written_before_the_next_message_is_delivered():
    async def ask_first(self, params, forward):
        await self.agent.request("_own", {"for": params["n"]})
        return await forward()

    async with hop(Scripted(ask_first)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        on_hop.client.send("_other", {"n": 2})
        await on_hop.settle()

        assert [what[1] for what in on_hop.agent.heard] == ["_own", "_other"]


async def test_a_reverse_request_during_a_request_does_not_deadlock():
    async def ask_client(self, params, forward):
        answer = await self.client.request("_question", {})
        return {"said": answer["said"]}

    async with hop(Scripted(forward_unchanged, ask_client)) as on_hop:
        on_hop.client.ask("_x", {"n": 1}, name="prompt")
        await on_hop.settle()
        on_hop.agent.ask("_x", {"n": 2}, name="permission")
        await on_hop.settle()
        on_hop.client.answer({"said": "yes"})
        await on_hop.settle()
        assert on_hop.agent.heard[-1] == ("answer", "permission", {"said": "yes"})

        on_hop.agent.answer("done")
        await on_hop.settle()

        assert on_hop.client.heard[-1] == ("answer", "prompt", "done")


async def test_two_requests_at_once_in_one_handler():
    async def both(self, params, forward):
        async def one(method):
            self.log.append(await self.agent.request(method, {}))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, "_a")
            nursery.start_soon(one, "_b")
        return "done"

    plugin = Scripted(both)
    async with hop(plugin) as on_hop:
        on_hop.client.ask("_x", {"n": 0})
        on_hop.client.send("_next", {})
        await on_hop.settle()
        assert {what[1] for what in on_hop.agent.heard} == {"_a", "_b", "_next"}

        on_hop.agent.answer({"n": 1})
        on_hop.agent.send("_between", {})
        await on_hop.settle()
        assert on_hop.client.heard == [("notification", "_between", {})]
        on_hop.agent.answer({"n": 2})
        on_hop.agent.send("_after", {})
        await on_hop.settle()

    assert plugin.log == [0, {"n": 1}, {"n": 2}]
    assert on_hop.client.heard[1:] == [("answer", "_x", "done"), ("notification", "_after", {})]


# -- rule 3 ----------------------------------------------------------------------------------------


async def test_after_the_response_nothing_sent_after_it_begins():
    gate = trio.Event()

    async def slow_after(self, params, forward):
        result = await forward()
        await gate.wait()
        return result

    async with hop(Scripted(slow_after, forward_unchanged)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        on_hop.agent.send("_x", {"n": 2})
        on_hop.agent.answer("done")
        on_hop.agent.send("_x", {"n": 3})
        await on_hop.settle()
        assert on_hop.client.heard == [("notification", "_x", {"n": 2})]

        gate.set()
        await on_hop.settle()

        assert on_hop.client.heard[1:] == [
            ("answer", "_x", "done"),
            ("notification", "_x", {"n": 3}),
        ]


async def test_the_first_update_of_a_session_follows_the_answer_that_opens_it():
    class New(Proxy):
        @on("session/new")
        async def new(self, params, forward):
            result = await forward()
            await self.client.request("_question", {})  # gives up the lane that the answer came on
            return result

    async with hop(New()) as on_hop:
        on_hop.client.ask("session/new", {})
        await on_hop.settle()
        on_hop.agent.answer({"sessionId": "new"})
        for update in (1, 2):
            on_hop.agent.send("session/update", {"sessionId": "new", "update": update})
        on_hop.agent.send("session/update", {"sessionId": "old", "update": 3})
        await on_hop.settle()
        assert [what[2].get("update") for what in on_hop.client.heard] == [None, 3]

        on_hop.client.answer({})
        on_hop.agent.send("session/update", {"sessionId": "new", "update": 4})
        await on_hop.settle()

    assert on_hop.client.heard[2] == ("answer", "session/new", {"sessionId": "new"})
    assert [what[2]["update"] for what in on_hop.client.heard[3:]] == [1, 2, 4]


async def test_updates_of_a_plugin_follow_the_response_that_opens_the_session():
    class New(Proxy):
        seen: ClassVar[list] = []

        @on("session/new")
        async def new(self, params, forward):
            await self.client.say("old", "before")
            result = await forward()
            await self.client.say("new", "2")
            self.start_soon(self.client.say, "new", "3")
            await self.client.request("_question", {})
            await self.client.say("new", "5")
            return result

        @on("session/update")
        async def see(self, params, forward):
            self.seen.append(text_of(params))
            await forward()

    async with hop(New()) as on_hop:
        on_hop.client.ask("session/new", {})
        await on_hop.settle()
        on_hop.agent.answer({"sessionId": "new"})
        await on_hop.settle()
        on_hop.agent.send("session/update", said("new", "4"))
        await on_hop.settle()
        assert [what[1] for what in on_hop.client.heard] == ["_question"]

        on_hop.client.answer({})
        await on_hop.settle()
        on_hop.agent.send("session/update", said("new", "6"))
        await on_hop.settle()

    assert on_hop.client.heard[1] == ("answer", "session/new", {"sessionId": "new"})
    told = [(what[2]["sessionId"], text_of(what[2])) for what in on_hop.client.heard[2:]]
    assert [text for session, text in told if session == "new"] == ["2", "3", "4", "5", "6"]
    assert ("old", "before") in told
    assert New.seen == ["4", "6"]  # not its own


async def test_updates_of_a_plugin_agent_follow_the_response_that_opens_the_session(autojump_clock):
    class Greeting(Agent):
        @on("initialize")
        async def initialize(self, params: dict):
            return {"protocolVersion": 1}

        @on("session/new")
        async def new(self, params: dict):
            await self.client.say("s1", "hello")
            return {"sessionId": "s1"}

    async with open_chain(Scripted(), Greeting()) as client:
        await client.initialize()
        opened = []
        client.handlers["session/update"] = lambda params: opened.append(text_of(params))
        await client.new_session("/", answered=lambda result: opened.append(result["sessionId"]))
        await trio.testing.wait_all_tasks_blocked()

    assert opened == ["s1", "hello"]


async def test_updates_after_the_response_follow_those_that_waited_for_it():
    class Greeting(Agent):
        @on("initialize")
        async def initialize(self, params: dict):
            return {"protocolVersion": 1}

        @on("session/new")
        async def new(self, params: dict):
            session = params["cwd"][1:]
            await self.client.say(session, "hello")
            self.start_soon(self.client.say, session, "ready")
            return {"sessionId": session}

    async with open_chain(Scripted(), Greeting()) as client:
        await client.initialize()
        seen = []
        client.handlers["session/update"] = lambda params: seen.append(text_of(params))
        for number in range(20):  # the order of tasks is random
            await client.new_session(f"/s{number}")
            await trio.testing.wait_all_tasks_blocked()

    assert seen == ["hello", "ready"] * 20


def said(session, text):
    content = {"type": "text", "text": text}
    update = {"sessionUpdate": "agent_message_chunk", "content": content}
    return {"sessionId": session, "update": update}


def text_of(params):
    return params["update"]["content"]["text"]
