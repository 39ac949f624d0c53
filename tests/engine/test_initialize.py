"""Initialization of whole chains, in memory."""

from __future__ import annotations

import pytest
import trio
from support.memory_chain import (
    ANSWER,
    INITIALIZE,
    chain_of,
    play_handshake,
    proxies,
    running_chain,
)
from support.peers.wire import MemoryComponent

from conductor.chain.start_failure import FailureContext
from conductor.errors import StartError
from conductor.transport.io_loop import HIGH_WATERMARK

PARAMS = INITIALIZE["params"]


def cancel(id):
    return {"method": "$/cancel_request", "params": {"requestId": id}}


def refused(id, problem):
    return {"id": id, "error": {"code": -32600, "message": "Invalid request", "data": problem}}


async def test_initialize_passes_the_chain_forward_and_its_result_backward(autojump_clock):
    async with running_chain(chain_of(2)) as harness:
        await harness.send(INITIALIZE)

        for index in (0, 1):
            request = await harness.peer(index).receive()
            assert request == {"id": 1, "method": "proxy/initialize", "params": PARAMS}
            inner = {"method": "initialize", "params": PARAMS}
            harness.peer(index).send({"id": "p", "method": "proxy/successor", "params": inner})
        request = await harness.agent.receive()
        assert request == {"id": 1, "method": "initialize", "params": PARAMS}
        harness.agent.answer(request, {**ANSWER, "by": ["agent"]})
        assert await harness.peer(1).receive() == {"id": "p", "result": {**ANSWER, "by": ["agent"]}}
        harness.peer(1).answer(request, {**ANSWER, "by": ["agent", 1]})
        assert await harness.peer(0).receive() == {
            "id": "p",
            "result": {**ANSWER, "by": ["agent", 1]},
        }
        harness.peer(0).answer(request, {**ANSWER, "by": ["agent", 1, 0]})

        expected = {**ANSWER, "by": ["agent", 1, 0]}
        assert await harness.client.receive() == {"id": 0, "result": expected}


async def test_all_components_start_together_on_the_clients_initialize(autojump_clock):
    components = [*proxies(3), MemoryComponent("agent", "agent")]
    async with running_chain(lambda: components) as harness:
        await harness.client.receive_nothing()
        assert [component.starts for component in components] == [0, 0, 0, 0]

        await harness.send(INITIALIZE)
        await harness.peer(0).receive()

        assert [component.starts for component in components] == [1, 1, 1, 1]


async def test_requests_before_initialize_are_refused_and_the_connection_stays_open(autojump_clock):
    async with running_chain(chain_of(1)) as harness:
        harness.client.send_line(b"{oops")
        harness.client.send(
            {"id": 1, "method": "session/new"},
            {"id": None, "method": "_vendor/x"},
            {"method": "session/cancel"},
            {"id": 9, "result": "stray"},
        )

        error, *refusals = [await harness.client.receive() for _ in range(3)]
        assert error["error"]["code"] == -32700
        assert refusals == [refused(id, "expected `initialize` request") for id in (1, None)]
        await play_handshake(harness)


async def repeat(harness, id, result):
    """Send `initialize` again, which passes a proxy; the agent answers with this result."""
    harness.client.send({"id": id, "method": "initialize", "params": {**PARAMS, "again": id}})
    asked = await harness.peer(0).receive()
    assert asked["method"] == "proxy/initialize"
    assert asked["params"] == {**PARAMS, "again": id}
    inner = {"method": "initialize", "params": asked["params"]}
    harness.peer(0).send({"id": "again", "method": "proxy/successor", "params": inner})
    harness.agent.answer(await harness.agent.receive(), result)
    answer = await harness.peer(0).receive()
    assert answer == {"id": "again", "result": result}
    harness.peer(0).answer(asked, result)
    assert await harness.client.receive() == {"id": id, "result": result}


async def test_initialize_may_be_repeated_before_the_first_other_request(autojump_clock):
    """It passes the chain that runs; what follows waits for its answer."""
    async with running_chain(chain_of(1)) as harness:
        await play_handshake(harness)
        await repeat(harness, 7, {**ANSWER, "agentInfo": {"name": "new"}})
        await repeat(harness, 8, ANSWER)
        harness.client.send({"method": "_note"})
        assert [each.starts for each in harness.components] == [1, 1]

        await harness.send({"id": 9, "method": "session/new", "params": {}})
        await harness.send({**INITIALIZE, "id": 10})

        reply = await harness.client.receive()
        assert reply == refused(10, "a connection is initialized only once")
        heard = [each["method"] for each in await harness.peer(0).receive_all()]
        assert heard == ["_note", "session/new"]


async def test_after_a_repeated_initialize_that_is_refused_the_first_one_counts(autojump_clock):
    async with running_chain(chain_of(0)) as harness:
        await play_handshake(harness)
        error = {"code": -32600, "message": "initialized already"}
        await harness.send({**INITIALIZE, "id": 7}, {"id": 8, "method": "session/new"})
        harness.agent.send({"id": (await harness.agent.receive())["id"], "error": error})

        assert await harness.client.receive() == {"id": 7, "error": error}
        assert (await harness.agent.receive())["method"] == "session/new"
        assert harness.components[0].starts == 1


async def test_a_second_initialize_is_refused_while_the_first_is_in_flight(autojump_clock):
    async with running_chain(chain_of(0)) as harness:
        await harness.send(INITIALIZE, {**INITIALIZE, "id": 1})

        assert await harness.client.receive() == refused(1, "`initialize` is already under way")


async def test_messages_before_the_initialize_result_are_queued_and_delivered_in_order(
    autojump_clock,
):
    async with running_chain(chain_of(0)) as harness:
        await harness.send(INITIALIZE)
        request = await harness.agent.receive()
        harness.client.send(
            {"id": 1, "method": "a"},
            {"method": "b"},
            {"id": 2, "method": "c"},
            {"method": "$/cancel_request", "params": {"requestId": 2}},
        )
        await harness.agent.receive_nothing()

        harness.agent.answer(request, ANSWER)

        assert await harness.agent.receive_all() == [
            {"id": 2, "method": "a"},
            {"method": "b"},
            {"id": 3, "method": "c"},
            {"method": "$/cancel_request", "params": {"requestId": 3}},
        ]
        assert await harness.client.receive_all() == [{"id": 0, "result": ANSWER}]


async def test_the_startup_gate_queues_more_than_the_high_watermark(autojump_clock):
    """The client is left unread meanwhile, and read again afterwards."""
    async with running_chain(chain_of(0)) as harness:
        await harness.send(INITIALIZE)
        request = await harness.agent.receive()
        for _ in range(6):
            harness.client.send({"method": "n", "params": {"text": "x" * 1_000_000}})
        harness.client.send({"id": 1, "method": "last"})
        await harness.client.receive_nothing()
        assert 6_000_000 - harness.client.unsent() < 2 * HIGH_WATERMARK

        harness.agent.answer(request, ANSWER)

        assert (await harness.client.receive())["id"] == 0
        assert [(await harness.agent.receive())["method"] for _ in range(7)] == ["n"] * 6 + ["last"]


async def test_a_full_startup_gate_is_emptied_by_a_failed_start(autojump_clock):
    async with running_chain(chain_of(0)) as harness:
        await harness.send(INITIALIZE)
        request = await harness.agent.receive()
        for _ in range(6):
            harness.client.send({"method": "n", "params": {"text": "x" * 1_000_000}})
        await harness.client.receive_nothing()
        harness.agent.refuse(request, -32000, "Authentication required")
        assert (await harness.client.receive())["error"]["code"] == -32000

        await play_handshake(harness)


@pytest.mark.parametrize("dialect", ["proxy", "_proxy"])
async def test_proxy_mode_uses_the_dialect_of_its_initialize(dialect, autojump_clock):
    async with running_chain(lambda: proxies(1), mode="proxy") as harness:
        await harness.send({"id": 0, "method": f"{dialect}/initialize", "params": PARAMS})
        request = await harness.peer(0).receive()
        assert request["method"] == "proxy/initialize"
        inner = {"method": "initialize", "params": PARAMS}
        harness.peer(0).send({"id": "i", "method": "proxy/successor", "params": inner})

        outer = {"id": 1, "method": f"{dialect}/successor", "params": inner}
        assert await harness.client.receive() == outer
        harness.client.send({"id": 1, "result": ANSWER})
        assert await harness.peer(0).receive() == {"id": "i", "result": ANSWER}
        harness.peer(0).answer(request, ANSWER)

        assert await harness.client.receive() == {"id": 0, "result": ANSWER}


async def test_proxy_mode_speaks_the_oldest_dialect_of_an_initialize_that_is_marked(autojump_clock):
    """The result is marked too, the components behind it get neither."""
    async with running_chain([], mode="proxy") as harness:
        await harness.send({**INITIALIZE, "params": {**PARAMS, "_meta": {"proxy": True, "x": 1}}})
        request = await harness.client.receive()
        assert request["method"] == "_proxy/successor/request"
        inner = {"method": "initialize", "params": {**PARAMS, "_meta": {"x": 1}}}
        assert request["params"] == inner
        harness.client.answer(request, ANSWER)
        assert await harness.client.receive() == {
            "id": 0,
            "result": {**ANSWER, "_meta": {"proxy": True}},
        }
        harness.client.send({"method": "session/cancel", "params": {"sessionId": "s"}})
        assert await harness.client.receive() == {
            "method": "_proxy/successor/notification",
            "params": {"method": "session/cancel", "params": {"sessionId": "s"}},
        }
        update = {"method": "session/update", "params": {"sessionId": "s"}}
        harness.client.send({"method": "_proxy/successor/notification", "params": update})
        assert await harness.client.receive() == update


async def test_a_proxy_of_the_oldest_dialect_is_initialized_with_a_mark(autojump_clock):
    async with running_chain(chain_of(1, dialect="_meta")) as harness:
        await harness.send(INITIALIZE)
        asked = await harness.peer(0).receive()
        marked = {**PARAMS, "_meta": {"proxy": True}}
        assert (asked["method"], asked["params"]) == ("initialize", marked)
        inner = {"method": "initialize", "params": marked}
        harness.peer(0).send({"id": "i", "method": "_proxy/successor/request", "params": inner})
        request = await harness.agent.receive()
        assert request["params"] == PARAMS
        harness.agent.answer(request, ANSWER)
        assert (await harness.peer(0).receive())["result"] == ANSWER
        harness.peer(0).answer(asked, {**ANSWER, "_meta": {"proxy": True}})
        assert (await harness.client.receive())["id"] == 0

        update = {"method": "session/update", "params": {"sessionId": "s"}}
        harness.agent.send(update, {"id": "q", "method": "session/request_permission"})

        told, question = await harness.peer(0).receive(), await harness.peer(0).receive()
        assert told == {"method": "_proxy/successor/notification", "params": update}
        assert question["method"] == "_proxy/successor/request"


async def test_an_empty_proxy_chain_forwards_everything(autojump_clock):
    async with running_chain(list, mode="proxy") as harness:
        await harness.send({"id": 0, "method": "_proxy/initialize", "params": PARAMS})
        inner = {"method": "initialize", "params": PARAMS}
        assert await harness.client.receive() == {
            "id": 1,
            "method": "_proxy/successor",
            "params": inner,
        }
        harness.client.send({"id": 1, "result": ANSWER})
        assert await harness.client.receive() == {"id": 0, "result": ANSWER}

        message = {"method": "session/new", "params": {"cwd": "/"}}
        harness.client.send({"id": 5, **message})
        assert await harness.client.receive() == {
            "id": 2,
            "method": "_proxy/successor",
            "params": message,
        }
        cancel = {"method": "session/cancel", "params": {"sessionId": "s1"}}
        harness.client.send({"method": "_proxy/successor", "params": cancel})
        assert await harness.client.receive() == cancel


async def test_proxy_mode_refuses_a_plain_initialize_and_keeps_running(autojump_clock):
    async with running_chain(list, mode="proxy") as harness:
        await harness.send(INITIALIZE)

        reply = await harness.client.receive()
        assert (reply["id"], reply["error"]["code"]) == (0, -32600)
        assert "proxy/initialize" in reply["error"]["data"]


async def test_initialize_of_a_chain_without_an_agent_is_an_error_that_says_so(autojump_clock):
    async with running_chain(list) as harness:
        await harness.send(INITIALIZE)

        reply = await harness.client.receive()
        assert (reply["id"], reply["error"]["code"]) == (0, -32603)
        assert "no agent" in reply["error"]["message"]


async def test_a_cancelled_initialize_is_cancelled_at_the_component_that_has_it(autojump_clock):
    async with running_chain(chain_of(1)) as harness:
        await harness.send(INITIALIZE)
        request = await harness.peer(0).receive()
        harness.client.send({"method": "$/cancel_request", "params": {"requestId": 0}})

        cancelled = {"method": "$/cancel_request", "params": {"requestId": 1}}
        assert await harness.peer(0).receive() == cancelled
        harness.peer(0).refuse(request, -32800, "Request cancelled")

        error = {"code": -32800, "message": "Request cancelled"}
        assert await harness.client.receive() == {"id": 0, "error": error}


async def test_initialize_may_be_retried_after_a_failure(autojump_clock):
    async with running_chain(chain_of(1)) as harness:
        await harness.send(INITIALIZE, {"id": 1, "method": "session/new"})
        request = await harness.peer(0).receive()
        harness.peer(0).refuse(request, -32000, "Authentication required", {"url": "x"})

        error = {"code": -32000, "message": "Authentication required", "data": {"url": "x"}}
        replies = [await harness.client.receive() for _ in range(2)]
        assert replies == [{"id": 0, "error": error}, {"id": 1, "error": error}]
        await play_handshake(harness)


async def test_a_session_that_is_cancelled_while_the_start_is_retried_stays_cancelled(
    autojump_clock,
):
    """The agent that explains a failed start tries again for each new session."""
    attempts = iter([StartError("agent", "not found"), None])

    def make():
        if (error := next(attempts)) is not None:
            raise error
        return [MemoryComponent("agent", "agent")]

    new = {"method": "session/new", "params": {"cwd": "/", "mcpServers": []}}
    async with running_chain(make, failure_context=FailureContext()) as harness:
        await harness.send(INITIALIZE)
        assert (await harness.client.receive())["id"] == 0
        await harness.send({"id": 1, **new})
        init = await harness.agent.receive()
        harness.client.send(cancel(1))
        assert await harness.agent.receive() == cancel(init["id"])
        harness.agent.answer(init, ANSWER)

        setup = await harness.agent.receive()
        assert setup == {"id": setup["id"], **new}
        assert await harness.agent.receive() == cancel(setup["id"])
        harness.agent.refuse(setup, -32800, "Request cancelled")
        error = {"code": -32800, "message": "Request cancelled"}
        assert await harness.client.receive() == {"id": 1, "error": error}


class Absent(MemoryComponent):
    """A program that does not exist."""

    def prepare(self, host):
        raise StartError(self.name, "command not found")


async def test_components_before_one_that_cannot_be_started_are_stopped(autojump_clock):
    proxy = MemoryComponent("p")
    async with running_chain([proxy, Absent("agent", "agent")]) as harness:
        await harness.send(INITIALIZE)

        reply = await harness.client.receive()
        assert reply["error"]["data"]["component"] == "agent"
        with trio.fail_after(60):
            await proxy.wait_ended()


async def test_a_cancelled_initialize_is_cancelled_in_the_other_dialect_too(autojump_clock):
    async with running_chain(chain_of(1)) as harness:
        await harness.send(INITIALIZE, cancel(0))
        proxy = harness.peer(0)
        asked, cancelled = await proxy.receive_all()
        assert cancelled == cancel(asked["id"])

        proxy.refuse(asked, -32601, "Method not found")

        again, cancelled = await proxy.receive_all()
        assert again["method"] == "_proxy/initialize"
        assert cancelled == cancel(again["id"])


async def test_a_proxy_that_keeps_the_answer_of_its_successor_exceeds_its_start_timeout(
    autojump_clock,
):
    async with running_chain(chain_of(1)) as harness:
        await harness.send(INITIALIZE)
        proxy = harness.peer(0)
        await proxy.receive()
        inner = {"method": "initialize", "params": PARAMS}
        proxy.send({"id": "p", "method": "proxy/successor", "params": inner})
        harness.agent.answer(await harness.agent.receive(), ANSWER)
        assert (await proxy.receive())["id"] == "p"

        await trio.sleep(31)

        reply = await harness.client.receive()
        assert reply["error"]["data"]["component"] == "p0"
        assert "(start_timeout)" in reply["error"]["message"]


async def test_the_start_timeout_does_not_run_while_a_proxy_waits_for_its_successor(autojump_clock):
    def make():
        agent = MemoryComponent("agent", "agent", start_timeout=20.0)
        return [*proxies(1, start_timeout=1.0), agent]

    async with running_chain(make) as harness:
        await harness.send(INITIALIZE)
        request = await harness.peer(0).receive()
        inner = {"method": "initialize", "params": PARAMS}
        harness.peer(0).send({"id": "i", "method": "proxy/successor", "params": inner})
        asked = await harness.agent.receive()
        await trio.sleep(15)
        harness.agent.answer(asked, ANSWER)
        await harness.peer(0).receive()
        await trio.sleep(0.9)
        harness.peer(0).answer(request, ANSWER)

        assert (await harness.client.receive())["result"] == ANSWER


async def test_a_component_that_cannot_be_built_is_the_error_of_initialize(autojump_clock):
    def make():
        raise StartError("notes", "no such file", location="chain.yaml:3:7")

    async with running_chain(make) as harness:
        await harness.send(INITIALIZE)

        reply = await harness.client.receive()
        assert reply == {
            "id": 0,
            "error": {
                "code": -32603,
                "message": "component 'notes' did not start: no such file",
                "data": {"component": "notes", "reason": "no such file", "place": "chain.yaml:3:7"},
            },
        }


async def test_a_chain_stopped_during_its_start_answers_every_request(autojump_clock):
    async with running_chain(chain_of(1), stop_timeout=1.0) as harness:
        await harness.send(INITIALIZE, {"id": 1, "method": "a"}, {"id": 1, "method": "b"})
        harness.peer(0).stays = True
        harness.chain.stop()

        await harness.client.wait_end()
        answers = await harness.client.receive_all()
        assert sorted(answer["id"] for answer in answers) == [0, 1, 1]
        assert all("error" in answer for answer in answers)


async def test_eof_from_the_client_ends_the_chain_at_once_after_a_refused_initialize(
    autojump_clock,
):
    async with running_chain(chain_of(0)) as harness:
        await harness.send(INITIALIZE)
        request = await harness.agent.receive()
        harness.client.close()
        await harness.client.receive_nothing()
        harness.agent.refuse(request, -32000, "Authentication required")

        assert (await harness.client.receive())["error"]["code"] == -32000
        assert (await harness.wait_ended()).reason == "never started"


async def test_eof_from_the_client_waits_for_a_retry_after_a_failed_start(autojump_clock):
    async with running_chain(chain_of(0)) as harness:
        await harness.send(INITIALIZE)
        harness.agent.close()
        await harness.client.receive()
        await harness.send({**INITIALIZE, "id": 1})
        request = await harness.agent.receive()
        harness.client.close()
        await harness.client.receive_nothing()

        harness.agent.answer(request, ANSWER)

        assert await harness.client.receive() == {"id": 1, "result": ANSWER}


# -- what passes -------------------------------------------------------------------------------

V2 = {
    "protocolVersion": 2,
    "info": {"name": "z", "version": "1", "unknown": 1e300},
    "capabilities": {"session": {"nothing": None}},
    "_meta": {"a": [1, "é"]},
    "later": {"x": 18446744073709551616},
}


@pytest.mark.parametrize("params", [V2, {"protocolVersion": 1, "clientInfo": None, "x": [{}]}])
async def test_the_handshake_keeps_all_members_in_both_protocol_versions(params, autojump_clock):
    result = {**params, "agentInfo": {"y": None}}
    async with running_chain(chain_of(1)) as harness:
        await harness.send({"id": "i", "method": "initialize", "params": params})
        request = await harness.peer(0).receive()
        assert request["params"] == params
        inner = {"method": "initialize", "params": params}
        harness.peer(0).send({"id": 1, "method": "proxy/successor", "params": inner})
        asked = await harness.agent.receive()
        assert asked == {"id": 1, "method": "initialize", "params": params}
        harness.agent.answer(asked, result)
        assert await harness.peer(0).receive() == {"id": 1, "result": result}
        harness.peer(0).answer(request, result)

        assert await harness.client.receive() == {"id": "i", "result": result}


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (
            {"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": {"acp": False}}},
            {"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": {"acp": True}}},
        ),
        (
            {"protocolVersion": 2, "capabilities": {"session": {}}},
            {"protocolVersion": 2, "capabilities": {"session": {"mcp": {"acp": {}}}}},
        ),
    ],
)
async def test_mcp_over_acp_is_advertised_to_the_client(result, expected, autojump_clock):
    async with running_chain(chain_of(0), announces_mcp_over_acp=True) as harness:
        await harness.send(INITIALIZE)
        harness.agent.answer(await harness.agent.receive(), result)

        assert await harness.client.receive() == {"id": 0, "result": expected}


async def test_messages_to_the_client_pass_before_the_initialize_result(autojump_clock):
    async with running_chain(chain_of(0)) as harness:
        await harness.send(INITIALIZE)
        request = await harness.agent.receive()
        harness.agent.send({"method": "_auth/status"}, {"id": 0, "method": "_auth/ask"})
        assert await harness.client.receive() == {"method": "_auth/status"}
        question = await harness.client.receive()
        harness.agent.answer(request, ANSWER)
        assert (await harness.client.receive())["id"] == 0
        harness.client.answer(question, "yes")

        assert await harness.agent.receive() == {"id": 0, "result": "yes"}


async def test_eof_from_the_parent_during_the_start_ends_the_chain_at_once(autojump_clock):
    async with running_chain(lambda: proxies(1), mode="proxy") as harness:
        await harness.send({"id": 0, "method": "proxy/initialize", "params": PARAMS})
        request = await harness.peer(0).receive()
        harness.client.close()
        await harness.client.receive_nothing()
        inner = {"method": "initialize", "params": PARAMS}
        harness.peer(0).send({"id": "i", "method": "proxy/successor", "params": inner})

        assert (await harness.peer(0).receive())["error"]["message"] == "The client is gone"
        harness.peer(0).refuse(request, -32603, "my successor is gone")
        assert (await harness.client.receive())["error"]["message"] == "my successor is gone"
        assert (await harness.wait_ended()).reason == "never started"
