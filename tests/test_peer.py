"""Two endpoints connected without a chain."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio

from conductor.errors import ConnectionClosed, RequestError
from conductor.peer import JsonRpcPeer
from conductor.transport.memory import memory_pair


@asynccontextmanager
async def two(**handlers):
    """An endpoint, and one that answers with these handlers."""
    ours, theirs = memory_pair()
    async with JsonRpcPeer(theirs, handlers).open() as other, JsonRpcPeer(ours).open() as endpoint:
        yield endpoint, other


async def test_a_request_without_a_handler_is_refused():
    async with two() as (endpoint, _):
        with pytest.raises(RequestError, match="Method not found"):
            await endpoint.request("double")


async def test_an_async_handler_holds_nothing_up():
    async def wait(params):
        await go_on.wait()

    go_on = trio.Event()
    async with (
        two(wait=wait, ping=lambda params: "pong") as (endpoint, _),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(endpoint.request, "wait")
        assert await endpoint.request("ping") == "pong"
        go_on.set()


async def test_a_result_is_delivered_before_later_messages():
    seen = []

    def answer_and_go_on(params):
        other.start_soon(notify)
        return "answer"

    async def notify():
        other.notify("after")

    async with two(ask=answer_and_go_on) as (endpoint, other):
        endpoint.handlers["after"] = lambda params: seen.append("after")
        await endpoint.request("ask", answered=seen.append)
        await trio.testing.wait_all_tasks_blocked()

    assert seen == ["answer", "after"]


async def test_a_cancelled_wait_cancels_the_request():
    cancelled = trio.Event()

    async def wait(params):
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    async with two(wait=wait) as (endpoint, _):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(endpoint.request, "wait")
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        await cancelled.wait()


async def test_pending_requests_raise_when_the_peer_disconnects():
    async with two(leave=lambda params: other.transport.close()) as (endpoint, other):
        with pytest.raises(ConnectionClosed):
            await endpoint.request("leave")
        with pytest.raises(ConnectionClosed):
            await endpoint.request("leave")


async def test_a_mistake_in_a_handler_comes_out_of_the_block():
    with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
        async with two(fail=lambda params: 1 / 0) as (endpoint, _):
            await endpoint.request("fail")


async def test_a_request_without_an_id_that_is_refused_ends_nothing():
    def refuse(params):
        raise RequestError(-32602, "no")

    async def refuse_later(params):
        refuse(params)

    async with two(ask=refuse, wait=refuse_later, ping=lambda params: "pong") as (endpoint, _):
        endpoint.notify("ask")
        endpoint.notify("wait")
        assert await endpoint.request("ping") == "pong"
