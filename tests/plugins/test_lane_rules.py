"""The seven lane rules of `conductor.proxy`, one by one."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import ClassVar

import attrs
import pytest
import trio
import trio.lowlevel
import trio.testing
from support.plugin_harness import hop

from conductor.errors import ConnectionClosed, LocalProtocolError
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.plugins.lane import Lane, LaneNotification
from conductor.plugins.plugin_component import PluginComponent
from conductor.proxy import Agent, Proxy, RequestCancelled, RequestError, on
from conductor.testing import FakeAgent, open_chain


@attrs.define(eq=False)
class Told(Proxy):
    """Does with every message of a peer what the test says, in a function."""

    from_client: object = None
    from_agent: object = None
    log: list = attrs.field(factory=list)

    @on("_x", source="client")
    async def _client(self, params, forward):
        self.log.append(params["n"])
        return await self.from_client(self, params, forward)

    @on("_x", source="agent")
    async def _agent(self, params, forward):
        self.log.append(params["n"])
        return await self.from_agent(self, params, forward)


async def pass_on(self, params, forward):
    return await forward()


class Failing(Told):
    pass


class Passing(Told):
    on_error = "pass"


# -- rule 1 ----------------------------------------------------------------------------------------


async def test_what_is_not_handled_waits_its_turn_behind_what_is():
    gate = trio.Event()

    async def wait(self, params, forward):
        await gate.wait()
        await forward()

    async with hop(Told(wait)) as on_hop:
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

    async with hop(Told(never, pass_on)) as on_hop:
        on_hop.client.send("_x", {"n": 1})
        on_hop.agent.send("_x", {"n": 2})
        await on_hop.settle()

        assert on_hop.client.heard == [("notification", "_x", {"n": 2})]


async def test_an_answer_does_not_overtake_the_notification_before_it():
    gate = trio.Event()

    async def wait(self, params, forward):
        await gate.wait()
        await forward()

    async with hop(Told(None, wait)) as on_hop:
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

    async with hop(Told(None, wait)) as on_hop:
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
    async with hop(Told(pass_on)) as on_hop:
        on_hop.client.ask("_x", {"n": 1}, name="first")
        on_hop.client.ask("_x", {"n": 2}, name="second")
        await on_hop.settle()
        assert [params["n"] for _, _, params in on_hop.agent.heard] == [1, 2]

        on_hop.agent.answer("b", which=1)
        on_hop.agent.answer("a")
        await on_hop.settle()

        assert on_hop.client.heard == [("answer", "second", "b"), ("answer", "first", "a")]


async def test_the_request_is_written_before_the_lane_goes_on():
    async def ask_first(self, params, forward):
        await self.agent.request("_own", {"for": params["n"]})
        return await forward()

    async with hop(Told(ask_first)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        on_hop.client.send("_other", {"n": 2})
        await on_hop.settle()

        assert [what[1] for what in on_hop.agent.heard] == ["_own", "_other"]


async def test_a_reverse_request_during_a_request_does_not_deadlock():
    async def ask_client(self, params, forward):
        answer = await self.client.request("_question", {})
        return {"said": answer["said"]}

    async with hop(Told(pass_on, ask_client)) as on_hop:
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

    plugin = Told(both)
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

    async with hop(Told(slow_after, pass_on)) as on_hop:
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


async def test_what_a_plugin_says_in_a_new_session_follows_the_answer_that_opens_it():
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


async def test_what_an_agent_says_in_a_session_that_it_opens_follows_the_answer(autojump_clock):
    class Greeting(Agent):
        @on("initialize")
        async def initialize(self, params: dict):
            return {"protocolVersion": 1}

        @on("session/new")
        async def new(self, params: dict):
            await self.client.say("s1", "hello")
            return {"sessionId": "s1"}

    async with open_chain(Told(), Greeting()) as client:
        await client.initialize()
        opened = []
        client.handlers["session/update"] = lambda params: opened.append(text_of(params))
        await client.new_session("/", answered=lambda result: opened.append(result["sessionId"]))
        await trio.testing.wait_all_tasks_blocked()

    assert opened == ["s1", "hello"]


def said(session, text):
    content = {"type": "text", "text": text}
    update = {"sessionUpdate": "agent_message_chunk", "content": content}
    return {"sessionId": session, "update": update}


def text_of(params):
    return params["update"]["content"]["text"]


# -- rule 4 ----------------------------------------------------------------------------------------


async def test_a_released_lane_goes_on():
    async def released(self, params, forward):
        self.release_lane()
        await trio.sleep_forever()

    async with hop(Told(released)) as on_hop:
        on_hop.client.send("_x", {"n": 1})
        on_hop.client.send("_other", {"n": 2})
        await on_hop.settle()

        assert on_hop.agent.heard == [("notification", "_other", {"n": 2})]


async def test_release_then_forward_still_gets_the_lane_of_the_response():
    gate = trio.Event()

    async def released(self, params, forward):
        self.release_lane()
        self.release_lane()
        result = await forward()
        await gate.wait()
        return result

    async with hop(Told(released)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        on_hop.agent.answer("done")
        on_hop.agent.send("_after", {})
        await on_hop.settle()
        assert on_hop.client.heard == []

        gate.set()
        await on_hop.settle()

        assert [what[1] for what in on_hop.client.heard] == ["_x", "_after"]


async def test_start_soon_runs_beside_the_lanes():
    async def beside(self, params, forward):
        async def later():
            answer = await self.agent.request("_own", {})
            await trio.lowlevel.checkpoint()
            await self.client.notify("_told", answer)
            await trio.sleep_forever()

        self.start_soon(later)
        await forward()

    async with hop(Told(beside)) as on_hop:
        on_hop.client.send("_x", {"n": 1})
        on_hop.client.send("_other", {"n": 2})
        await on_hop.settle()
        passed = [what[1] for what in on_hop.agent.heard]
        assert [method for method in passed if method != "_own"] == ["_x", "_other"]

        on_hop.agent.answer({"a": 1})
        await on_hop.settle()

        assert on_hop.client.heard == [("notification", "_told", {"a": 1})]


async def test_a_task_that_outlives_its_handler_touches_no_lane():
    """It inherits the handler's context; the worker has long been dealing with something else."""
    gates = {name: trio.Event() for name in ("task", "second")}

    @attrs.define(eq=False)
    class Nursery(Told):
        nursery: object = None

        @asynccontextmanager
        async def lifespan(self):
            async with trio.open_nursery() as self.nursery:
                yield
                self.nursery.cancel_scope.cancel()

    async def handle(self, params, forward):
        if params["n"] == 1:

            async def task():
                await gates["task"].wait()
                self.release_lane()
                await self.agent.request("_own", {})

            self.nursery.start_soon(task)
        else:
            await gates["second"].wait()

    async with hop(Nursery(handle)) as on_hop:
        on_hop.client.send("_x", {"n": 1})
        await on_hop.settle()
        on_hop.client.send("_x", {"n": 2})
        on_hop.client.send("_other", {})
        await on_hop.settle()
        gates["task"].set()
        await on_hop.settle()
        assert [what[1] for what in on_hop.agent.heard] == ["_own"]

        on_hop.agent.answer({})
        on_hop.agent.send("_after", {})
        gates["second"].set()
        await on_hop.settle()

        assert [what[1] for what in on_hop.agent.heard] == ["_own", "_other"]
        assert [what[1] for what in on_hop.client.heard] == ["_after"]


async def test_a_lane_that_is_held_is_logged_with_its_holder(logged, autojump_clock):
    async def hold(self, params, forward):
        await trio.sleep(11)

    async with hop(Told(hold)) as on_hop:
        on_hop.client.send("_x", {"n": 1})
        await trio.sleep(20)

    fields = next(fields for event, fields in logged if event == "slow handler holds its lane")
    assert fields["lane"] == "toward the agent"
    assert fields["handler"].startswith(__file__)


# -- rule 5 ----------------------------------------------------------------------------------------


async def test_a_notification_that_is_not_forwarded_is_dropped():
    async def drop(self, params, forward):
        pass

    async with hop(Told(drop)) as on_hop:
        on_hop.client.send("_x", {"n": 1})
        on_hop.client.send("_other", {})
        await on_hop.settle()

        assert [what[1] for what in on_hop.agent.heard] == ["_other"]


async def test_forward_twice_sends_twice():
    async def twice(self, params, forward):
        first = await forward()
        second = await forward({"n": 2})
        return [first["r"], second["r"]]

    async with hop(Told(twice)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        on_hop.agent.answer({"r": "a"})
        await on_hop.settle()
        on_hop.agent.answer({"r": "b"})
        await on_hop.settle()

        assert [what[2] for what in on_hop.agent.heard] == [{"n": 1}, {"n": 2}]
        assert on_hop.client.heard == [("answer", "_x", ["a", "b"])]


async def test_forward_after_the_handler_has_answered_runs_beside_the_lanes():
    async def leak(self, params, forward):
        async def later():
            self.log.append(await forward({"n": 2}))

        self.start_soon(later)
        return "mine"

    plugin = Told(leak)
    async with hop(plugin) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        on_hop.agent.answer({"too": "late"})
        await on_hop.settle()

    assert on_hop.client.heard == [("answer", "_x", "mine")]
    assert plugin.log == [1, {"too": "late"}]


async def test_a_refusal_passes_unchanged_through_a_handler_that_does_not_catch_it():
    async with hop(Told(pass_on)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        on_hop.agent.refuse(-32123)
        await on_hop.settle()

        assert on_hop.client.heard == [("answer", "_x", -32123)]


async def test_a_refusal_in_a_nursery_is_still_the_answer():
    async def in_nursery(self, params, forward):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(forward)

    async with hop(Told(in_nursery)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        on_hop.agent.refuse(-32123)
        await on_hop.settle()

        assert on_hop.client.heard == [("answer", "_x", -32123)]


async def test_an_answer_that_a_handler_forgot_to_return_is_an_error_and_not_null():
    async def forgets(self, params, forward):
        await forward()

    async with hop(Told(forgets)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        on_hop.agent.answer({"r": 1})
        await on_hop.settle()

        assert on_hop.client.heard == [("answer", "_x", -32603)]


# -- rule 6 ----------------------------------------------------------------------------------------


async def test_cancelling_a_handler_that_waits_for_a_response_cancels_the_hops_request():
    async with hop(Told(pass_on)) as on_hop:
        call = on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        call.cancel()
        await on_hop.settle()
        assert on_hop.agent.cancelled == ["_x"]
        assert on_hop.client.heard == []

        on_hop.agent.answer("real")
        await on_hop.settle()

        assert on_hop.client.heard == [("answer", "_x", "real")]


async def test_cancelling_a_handler_that_waits_for_something_of_its_own_cancels_it():
    async def wait(self, params, forward):
        await trio.sleep_forever()

    async with hop(Told(wait)) as on_hop:
        call = on_hop.client.ask("_x", {"n": 1})
        on_hop.client.send("_other", {})
        await on_hop.settle()
        call.cancel()
        await on_hop.settle()

        assert on_hop.client.heard == [("answer", "_x", -32800)]
        assert [what[1] for what in on_hop.agent.heard] == ["_other"]


async def test_cancelling_after_the_response_cancels_what_the_handler_does_then():
    async def wait_after(self, params, forward):
        await forward()
        await trio.sleep_forever()

    async with hop(Told(wait_after)) as on_hop:
        call = on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        on_hop.agent.answer({})
        on_hop.agent.send("_after", {})
        await on_hop.settle()
        call.cancel()
        await on_hop.settle()

        assert on_hop.agent.cancelled == []
        assert [what[1:] for what in on_hop.client.heard] == [("_x", -32800), ("_after", {})]


async def test_cancelling_a_request_that_waits_in_its_lane_answers_it_at_once():
    gate = trio.Event()

    async def wait(self, params, forward):
        await gate.wait()
        return "done"

    plugin = Told(wait)
    async with hop(plugin) as on_hop:
        on_hop.client.ask("_x", {"n": 1}, name="first")
        call = on_hop.client.ask("_x", {"n": 2}, name="second")
        on_hop.client.ask("_x", {"n": 3}, name="third")
        await on_hop.settle()
        call.cancel()
        assert on_hop.client.heard == [("answer", "second", -32800)]

        gate.set()
        await on_hop.settle()

    assert on_hop.client.heard[1:] == [("answer", "first", "done"), ("answer", "third", "done")]
    assert plugin.log == [1, 3]


async def test_a_request_that_only_passes_is_cancelled_where_it_goes():
    gate = trio.Event()

    async def wait(self, params, forward):
        await gate.wait()

    async with hop(Told(wait)) as on_hop:
        on_hop.client.send("_x", {"n": 1})
        call = on_hop.client.ask("_other")
        call.cancel()
        gate.set()
        await on_hop.settle()

        assert on_hop.agent.cancelled == ["_other"]


async def test_what_a_cancelled_handler_sends_is_cancelled_too():
    async def twice(self, params, forward):
        await self.agent.request("_hidden", {})
        return await forward()

    async with hop(Told(twice)) as on_hop:
        call = on_hop.client.ask("_x", {"n": 1})
        await on_hop.settle()
        call.cancel()
        on_hop.agent.answer({})
        await on_hop.settle()

        assert on_hop.agent.cancelled == ["_hidden", "_x"]


async def test_a_wait_of_limited_time_cancels_its_request_and_nothing_else(autojump_clock):
    async def impatient(self, params, forward):
        with trio.move_on_after(1):
            await self.agent.request("_slow", {})
        return "gave up"

    async with hop(Told(impatient)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        await trio.sleep(2)
        assert on_hop.client.heard == [("answer", "_x", "gave up")]
        assert on_hop.agent.cancelled == ["_slow"]

        on_hop.agent.answer({})
        on_hop.agent.send("_after", {})
        await on_hop.settle()

        assert on_hop.client.heard[1:] == [("notification", "_after", {})]


# -- rule 7 ----------------------------------------------------------------------------------------


def _group():
    return ExceptionGroup("both", [ValueError("a"), RequestError(-32123, "b")])


@pytest.mark.parametrize("error", [ValueError, SystemExit, RecursionError, _group])
async def test_a_failure_answers_a_request_and_drops_a_notification(error):
    async def fail(self, params, forward):
        raise error()

    async with hop(Failing(fail)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        on_hop.client.send("_x", {"n": 2})
        on_hop.client.send("_other", {"n": 3})
        await on_hop.settle()

        assert on_hop.client.heard == [("answer", "_x", -32603)]
        assert on_hop.agent.heard == [("notification", "_other", {"n": 3})]
        assert on_hop.host.failures == []


async def test_on_error_pass_passes_on_what_was_not_yet():
    async def fail(self, params, forward):
        raise ValueError("broken observer")

    async with hop(Passing(fail)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        on_hop.client.send("_x", {"n": 2})
        await on_hop.settle()
        on_hop.agent.answer("real")
        await on_hop.settle()

        assert [what[2] for what in on_hop.agent.heard] == [{"n": 1}, {"n": 2}]
        assert on_hop.client.heard == [("answer", "_x", "real")]


async def test_on_error_pass_never_sends_a_request_twice():
    async def fail_after(self, params, forward):
        await forward()
        raise ValueError("broken observer")

    async with hop(Passing(fail_after)) as on_hop:
        on_hop.client.ask("_x", {"n": 1})
        on_hop.client.send("_x", {"n": 2})
        await on_hop.settle()
        on_hop.agent.answer("real")
        await on_hop.settle()

        assert [what[2] for what in on_hop.agent.heard] == [{"n": 1}, {"n": 2}]
        assert on_hop.client.heard == [("answer", "_x", "real")]


async def test_on_error_pass_does_not_repeat_a_request_that_is_under_way():
    gate = trio.Event()

    async def fail_beside(self, params, forward):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(forward)
            await gate.wait()
            raise ValueError("broken observer")

    async with hop(Passing(fail_beside)) as on_hop:
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

    async with hop(Told(fail)) as on_hop:
        on_hop.client.send("_x", {"n": 1, "sessionId": "s-1"})
        await on_hop.settle()

    fields = dict(next(fields for event, fields in logged if event == "handler failed"))
    assert isinstance(fields.pop("exc_info"), ValueError)
    assert fields.pop("handler").startswith(f"{__file__}:")
    assert fields == {"component": "hop", "plugin": "Told", "method": "_x", "session": "s-1"}


# -- the plugin's life -----------------------------------------------------------------------------


async def test_at_the_end_whoever_still_waits_is_answered():
    async def forever(self, params, forward):
        if params["n"] == 1:
            return await forward()
        return await trio.sleep_forever()

    async with hop(Told(forever)) as on_hop:
        on_hop.client.ask("_x", {"n": 1}, name="forwarded")
        on_hop.client.ask("_x", {"n": 2}, name="own")
        on_hop.client.ask("_x", {"n": 3}, name="queued")
        on_hop.client.ask("_other", {"n": 4}, name="passing")
        await on_hop.settle()
        on_hop.component.terminate()
        await on_hop.ended.wait()
        on_hop.client.ask("_x", {"n": 5}, name="late")
        on_hop.client.send("_x", {"n": 6})
        on_hop.client.send("_other", {"n": 7})

        answers = {what[1]: what[2] for what in on_hop.client.heard}
        assert answers == dict.fromkeys(("forwarded", "own", "queued", "late"), -32603)
        assert [what[2]["n"] for what in on_hop.agent.heard] == [1, 4, 7]


async def test_the_end_waits_for_handlers_that_finish():
    gate = trio.Event()

    async def wait(self, params, forward):
        await gate.wait()
        await forward()

    async with hop(Told(wait)) as on_hop, trio.open_nursery() as nursery:
        on_hop.client.send("_x", {"n": 1})
        on_hop.component.close_input()
        nursery.start_soon(on_hop.component.wait_drained)
        await on_hop.settle()
        assert not on_hop.ended.is_set()

        gate.set()
        await on_hop.ended.wait()

        assert on_hop.agent.heard == [("notification", "_x", {"n": 1})]


async def test_no_requests_before_and_after_the_plugins_life():
    class Early(Proxy):
        errors: ClassVar = []

        @asynccontextmanager
        async def lifespan(self):
            try:
                await self.agent.request("_own", {})
            except LocalProtocolError as exc:
                self.errors.append(str(exc))
            yield
            try:
                await self.agent.request("_own", {})
            except ConnectionClosed as exc:
                self.errors.append(str(exc))

    plugin = Early()
    async with hop(plugin) as on_hop:
        on_hop.component.terminate()
        await on_hop.ended.wait()

    before, after = plugin.errors
    assert "before lifespan() has yielded" in before
    assert "start_soon" in before
    assert "the chain is ending" in after


async def test_lifespan_may_start_what_runs_later_and_is_left_without_haste():
    steps = []

    class Opens(Proxy):
        @asynccontextmanager
        async def lifespan(self):
            self.start_soon(self.ask)
            yield
            await trio.lowlevel.checkpoint()
            steps.append("closed")

        async def ask(self):
            steps.append(await self.agent.request("_own", {}))

    async with hop(Opens()) as on_hop:
        on_hop.agent.answer({"n": 1})
        await on_hop.settle()
        on_hop.component.terminate()
        await on_hop.ended.wait()

    assert steps == [{"n": 1}, "closed"]


async def test_a_lifespan_that_does_not_begin_is_a_failure_to_start(autojump_clock):
    class Hangs(Proxy):
        @asynccontextmanager
        async def lifespan(self):
            await trio.sleep_forever()
            yield

    async with hop(Hangs()) as on_hop:
        await trio.sleep(31)
        (failure,) = on_hop.host.failures

    assert str(failure) == "component 'hop' did not start: lifespan() did not yield within 30 s"


async def test_a_long_chain_of_plugins_needs_no_deep_stack(chain):
    class Passes(Proxy):
        @on("_handled")
        async def handle(self, params, forward):
            return await forward()

    echo = FakeAgent(handlers={method: lambda params: params for method in ("_handled", "_passed")})
    async with chain(*(Passes() for _ in range(64)), echo) as client:
        await client.initialize()

        assert await client.request("_handled", {"n": 1}) == {"n": 1}
        assert await client.request("_passed", {"n": 2}) == {"n": 2}


# -- the books -------------------------------------------------------------------------------------


def test_a_lane_counts_the_bytes_that_wait():
    lane = Lane("x")
    first, second, third = (LaneNotification("m", b"x" * n) for n in (1, 10, 100))

    assert lane.put(first)
    assert not lane.put_batch([second, third])
    assert lane.size == 111
    assert [lane.take(), lane.take()] == [first, second]
    assert not lane.put_back([first, second])
    assert lane.size == 111
    assert [lane.take(), lane.take(), lane.take(), lane.take()] == [first, second, third, None]
    assert (lane.size, lane.held, lane.delivered) == (0, False, 5)


def test_request_cancelled_is_the_code_of_the_protocol():
    assert RequestCancelled().code == -32800
    assert PluginComponent("x", Told(), "proxy").backlog() == 0
