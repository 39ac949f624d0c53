"""For any exception of plugin code, each request is answered once and the plugin goes on."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from support.peers.port import hop

from conductor.errors import ComponentExited, RequestError, StartError
from conductor.plugins.failures import split_failure
from conductor.proxy import Proxy, RawMessage, on


class OwnError(BaseException):
    """A `BaseException`, as some libraries raise."""


class NoRepr:
    def __repr__(self):
        raise OwnError


RAISED = {
    "Exception": lambda: ValueError("x"),
    "own": OwnError,
    "exit": lambda: SystemExit(0),
    "interrupt": KeyboardInterrupt,
    "asyncio": asyncio.CancelledError,
    "generator": GeneratorExit,
    "cancelled": lambda: trio.Cancelled._create(source="unknown"),
    "group": lambda: BaseExceptionGroup("g", [OwnError(), asyncio.CancelledError()]),
    "refusal that is not JSON": lambda: RequestError(-1, "x", {"data": NoRepr()}),
}
every_exception = pytest.mark.parametrize("make", RAISED.values(), ids=RAISED)


@attrs.define(eq=False)
class Raising(Proxy):
    make: object
    where: str
    seen: list = attrs.field(factory=list)
    later: list = attrs.field(factory=list)

    def strike(self, where):
        if where == self.where:
            raise self.make()

    @asynccontextmanager
    async def lifespan(self):
        self.strike("start")
        yield
        self.strike("stop")

    def unread_bytes(self):
        self.strike("unread_bytes")
        return 0

    @on("*")
    async def see(self, message: RawMessage):
        self.strike("observer")
        if message.method == "_x":
            self.seen.append(message.kind)

    @on("_x", source="client")
    async def handle(self, params: dict, forward):
        if params.get("background"):
            self.start_soon(self.background)
        if params.get("ask"):
            self.agent.ask("_y", {}, lambda result, error: self.strike("answered"))
        if params.get("defer"):
            self.later.append(self.defer(lambda: self.strike("cancelled")))
            return None
        self.strike("handler")
        return await forward()

    async def background(self):
        self.strike("task")


async def is_alive(on_hop):
    on_hop.client.ask("_z", {}, name="alive")
    await on_hop.settle()
    on_hop.agent.answer("yes", which=-1)
    await on_hop.settle()
    return on_hop.client.heard[-1] == ("answer", "alive", "yes") and on_hop.host.failures == []


@every_exception
async def test_a_request_whose_handler_raises_is_answered(make, logged):
    async with hop(Raising(make, "handler")) as on_hop:
        on_hop.client.ask("_x", {})
        on_hop.client.send("_x", {})
        await on_hop.settle()

        assert on_hop.client.heard == [("answer", "_x", -32603)]
        assert await is_alive(on_hop)
    assert {event for event, _ in logged} == {"handler failed"}


@every_exception
async def test_an_observer_that_raises_stops_nothing(make, logged):
    async with hop(Raising(make, "observer")) as on_hop:
        on_hop.client.ask("_x", {})
        await on_hop.settle()
        on_hop.agent.answer("real")
        await on_hop.settle()

        assert on_hop.client.heard == [("answer", "_x", "real")]
        assert await is_alive(on_hop)


@every_exception
async def test_a_task_that_raises_ends_alone(make, logged):
    async with hop(Raising(make, "task")) as on_hop:
        on_hop.client.ask("_x", {"background": True})
        await on_hop.settle()
        on_hop.agent.answer("real")

        assert await is_alive(on_hop)
    assert [event for event, _ in logged] == ["task failed"]


@every_exception
async def test_callbacks_that_raise_stop_nothing(make, logged):
    async with hop(Raising(make, "answered")) as on_hop:
        on_hop.client.ask("_x", {"ask": True})
        await on_hop.settle()
        on_hop.agent.answer("for the callback")
        on_hop.agent.answer("real")

        assert await is_alive(on_hop)
    assert [event for event, _ in logged] == ["response callback failed"]


@every_exception
async def test_a_cancel_callback_that_raises_does_not_affect_the_sender(make, logged):
    plugin = Raising(make, "cancelled")
    async with hop(plugin) as on_hop:
        call = on_hop.client.ask("_x", {"defer": True})
        await on_hop.settle()
        call.cancel()
        plugin.later[0](b'"late"', None)

        assert on_hop.client.heard == [("answer", "_x", "late")]
        assert await is_alive(on_hop)
    assert [event for event, _ in logged] == ["callback of defer() failed"]


@every_exception
async def test_unread_bytes_that_raises_counts_as_nothing_and_is_logged_once(make, logged):
    async with hop(Raising(make, "unread_bytes")) as on_hop:
        assert on_hop.component.client_port.unread() == 0
        assert on_hop.component.client_port.unread() == 0
        assert await is_alive(on_hop)
    assert [event for event, _ in logged] == ["unread_bytes() failed, counted as 0"]


@every_exception
async def test_a_lifespan_that_raises_is_a_start_error(make, logged):
    async with hop(Raising(make, "start")) as on_hop:
        await on_hop.ended.wait()

        (failure,) = on_hop.host.failures
        assert type(failure) is StartError
        assert failure.component == "hop"


@every_exception
async def test_a_lifespan_that_raises_at_its_end_is_logged(make, logged):
    async with hop(Raising(make, "stop")) as on_hop:
        on_hop.component.terminate()
        await on_hop.ended.wait()

        assert on_hop.host.failures == []
    assert [event for event, _ in logged] == ["plugin failed"]


class Dying(Proxy):
    @asynccontextmanager
    async def lifespan(self):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.die)
            yield

    async def die(self):
        await trio.sleep(5)
        raise OwnError("later")


async def test_a_lifespan_that_raises_later_is_the_failure_of_the_plugin(autojump_clock, logged):
    async with hop(Dying()) as on_hop:
        await on_hop.ended.wait()

        (failure,) = on_hop.host.failures
        assert type(failure) is ComponentExited
        assert failure.status.startswith("failed: OwnError: later (test_plugin_errors.py:")


async def test_a_handler_that_is_cancelled_from_outside_does_not_count_as_failed(logged):
    class Waiting(Proxy):
        @on("_x", source="client")
        async def wait(self, params: dict):
            await trio.sleep_forever()

    async with hop(Waiting()) as on_hop:
        call = on_hop.client.ask("_x", {})
        await on_hop.settle()
        call.cancel()
        await on_hop.settle()

        assert on_hop.client.heard == [("answer", "_x", -32800)]
    assert logged == []


async def test_cancellations_in_an_exception_group_propagate_and_the_rest_is_the_failure():
    with trio.CancelScope() as scope:  # noqa: ASYNC100 - nothing waits
        scope.cancel()
        cancelled, failure = trio.Cancelled._create(source="unknown"), OwnError()
        group = BaseExceptionGroup("a", [BaseExceptionGroup("b", [cancelled]), failure])

        of_plugin, passing = split_failure(group)
        assert of_plugin.exceptions == (failure,)
        assert passing.exceptions[0].exceptions == (cancelled,)
        assert split_failure(cancelled) == (None, cancelled)
