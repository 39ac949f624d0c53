"""All generations of the proxy protocol, detected, in one chain (interop §0, §1.6)."""

from __future__ import annotations

import pytest
from support.memory_chain import ANSWER, INITIALIZE, chain_of, play_handshake, running_chain
from support.peers.wire import MemoryComponent

PARAMS = INITIALIZE["params"]
UNKNOWN = (-32601, "Method not found", "proxy/initialize")


async def finish(harness, *, request, dialect="_proxy"):
    """Play the rest of the handshake of a chain of one proxy; `request` is the init it took."""
    assert request["method"] == f"{dialect}/initialize"
    assert request["params"] == PARAMS
    peer = harness.peer(0)
    inner = {"method": "initialize", "params": PARAMS}
    peer.send({"id": "i", "method": f"{dialect}/successor", "params": inner})
    harness.agent.answer(await harness.agent.receive(), ANSWER)
    assert await peer.receive() == {"id": "i", "result": ANSWER}
    peer.answer(request, ANSWER)
    assert await harness.client.receive() == {"id": 0, "result": ANSWER}
    harness.agent.send({"method": "session/update", "params": {}})
    assert await peer.receive() == {
        "method": f"{dialect}/successor",
        "params": {"method": "session/update", "params": {}},
    }


async def test_a_proxy_that_refuses_the_method_is_asked_in_the_other_dialect(autojump_clock):
    async with running_chain(chain_of(1)) as harness:
        await harness.send(INITIALIZE)
        harness.peer(0).refuse(await harness.peer(0).receive(), *UNKNOWN)

        await finish(harness, request=await harness.peer(0).receive())
        assert harness.components[0].starts == 1


async def test_a_proxy_that_forwards_initialize_unchanged_is_asked_in_the_other_dialect(
    autojump_clock,
):
    async with running_chain(chain_of(1)) as harness:
        await harness.send(INITIALIZE)
        request = await harness.peer(0).receive()
        echo = {"method": request["method"], "params": request["params"]}
        harness.peer(0).send({"id": "echo", "method": "_proxy/successor", "params": echo})

        again = await harness.peer(0).receive()
        refusal = await harness.peer(0).receive()
        assert (refusal["id"], refusal["error"]["code"]) == ("echo", -32600)
        harness.peer(0).send({"id": request["id"], "error": refusal["error"]})
        await finish(harness, request=again)


async def test_a_proxy_that_cannot_be_asked_twice_is_restarted(autojump_clock):
    async with running_chain(chain_of(1)) as harness:
        await harness.send(INITIALIZE)
        first = harness.peer(0)
        problem = "first ACP proxy request must be `_proxy/initialize`"
        first.refuse(await first.receive(), -32600, "Invalid request", problem)
        await harness.client.receive_nothing()

        second = harness.peer(0)
        assert second is not first
        await finish(harness, request=await second.receive())
        assert harness.components[0].starts == 2


async def test_a_proxy_that_closes_the_connection_is_restarted_in_the_other_dialect(autojump_clock):
    async with running_chain(chain_of(1)) as harness:
        await harness.send(INITIALIZE)
        first = harness.peer(0)
        await first.receive()
        first.close()
        await harness.client.receive_nothing()

        await finish(harness, request=await harness.peer(0).receive())


async def test_a_proxy_that_does_not_initialize_its_successor_is_an_error(autojump_clock):
    async with running_chain(chain_of(1)) as harness:
        await harness.send(INITIALIZE)
        harness.peer(0).answer(await harness.peer(0).receive(), ANSWER)

        reply = await harness.client.receive()
        assert reply["error"]["data"]["component"] == "p0"
        assert "without having initialized its successor" in reply["error"]["message"]
        assert "is it an agent rather than a proxy?" in reply["error"]["message"]


@pytest.mark.parametrize(
    "error",
    [
        (-32600, "Invalid request", "unsupported ACP protocol version 1"),
        (-32000, "Authentication required", None),
    ],
)
async def test_an_error_other_than_method_not_found_reaches_the_client(error, autojump_clock):
    async with running_chain(chain_of(1)) as harness:
        await harness.send(INITIALIZE)
        harness.peer(0).refuse(await harness.peer(0).receive(), *error)

        reply = await harness.client.receive()
        assert (reply["error"]["code"], reply["error"]["message"]) == error[:2]


async def test_an_agent_listed_as_a_proxy_is_an_error_that_names_it(autojump_clock):
    async with running_chain(chain_of(1)) as harness:
        await harness.send(INITIALIZE)
        for method in ("proxy/initialize", "_proxy/initialize"):
            request = await harness.peer(0).receive()
            assert request["method"] == method
            harness.peer(0).refuse(request, -32601, "Method not found", method)

        error = (await harness.client.receive())["error"]
        assert (error["code"], error["data"]["component"]) == (-32603, "p0")
        assert "is it an agent rather than a proxy?" in error["message"]


@pytest.mark.parametrize("count", [0, 1])
async def test_a_program_that_returns_its_input_is_an_error_that_names_it(count, autojump_clock):
    async with running_chain(chain_of(count)) as harness:
        await harness.send(INITIALIZE)
        harness.peer(0).send(await harness.peer(0).receive())

        error = (await harness.client.receive())["error"]
        assert (error["code"], error["data"]["component"]) == (-32603, "p0" if count else "agent")
        assert "is it a program that speaks ACP?" in error["message"]


async def test_a_proxy_that_initializes_its_predecessor_is_an_error_that_names_it(autojump_clock):
    async with running_chain(chain_of(1)) as harness:
        await harness.send(INITIALIZE)
        await harness.peer(0).receive()
        harness.peer(0).send({"id": 1, "method": "initialize", "params": PARAMS})

        error = (await harness.client.receive())["error"]
        assert error["data"]["component"] == "p0"
        assert "it sent `initialize` back" in error["message"]


async def test_a_refusal_with_a_lone_surrogate_reaches_the_client(autojump_clock):
    async with running_chain(chain_of(0)) as harness:
        await harness.send(INITIALIZE)
        await harness.agent.receive()
        error = rb'{"code":-32000,"message":"\ud83d","data":"\udead"}'
        harness.agent.send_line(b'{"jsonrpc":"2.0","id":1,"error":' + error + b"}")

        assert error in await harness.client.receive_line()


@pytest.mark.parametrize("dialect", ["proxy", "_proxy"])
async def test_a_configured_dialect_is_the_only_one_tried(dialect, autojump_clock):
    async with running_chain(chain_of(1, dialect=dialect)) as harness:
        await harness.send(INITIALIZE)
        request = await harness.peer(0).receive()
        assert request["method"] == f"{dialect}/initialize"
        harness.peer(0).refuse(request, *UNKNOWN)

        error = (await harness.client.receive())["error"]
        assert error["data"]["component"] == "p0"
        assert f"it does not take `{dialect}/initialize`" in error["message"]


async def test_proxies_of_all_dialects_work_in_one_chain(autojump_clock):
    def make():
        first, second = MemoryComponent("p0", dialect="_proxy"), MemoryComponent("p1")
        return [first, second, MemoryComponent("p2"), MemoryComponent("agent", "agent")]

    dialects = ["_proxy", "proxy", "_proxy"]
    async with running_chain(make) as harness:
        await harness.send(INITIALIZE)
        requests = []
        for index, dialect in enumerate(dialects):
            request = await harness.peer(index).receive()
            if index == 2:
                harness.peer(2).refuse(request, *UNKNOWN)
                request = await harness.peer(2).receive()
            assert request["method"] == f"{dialect}/initialize"
            requests.append(request)
            inner = {"method": "initialize", "params": PARAMS}
            harness.peer(index).send({"id": "i", "method": f"{dialect}/successor", "params": inner})
        harness.agent.answer(await harness.agent.receive(), ANSWER)
        for index in (2, 1, 0):
            await harness.peer(index).receive()
            harness.peer(index).answer(requests[index], ANSWER)
        await harness.client.receive()

        update = {"method": "session/update", "params": {"x": 1}}
        harness.agent.send(update)
        for index in (2, 1, 0):
            envelope = {"method": f"{dialects[index]}/successor", "params": update}
            assert await harness.peer(index).receive() == envelope
            harness.peer(index).send(update)
        assert await harness.client.receive() == update


@pytest.mark.parametrize(("dialect", "other"), [("proxy", "_proxy"), ("_proxy", "proxy")])
async def test_either_envelope_is_accepted_from_a_proxy_at_any_time(dialect, other, autojump_clock):
    """It gets the envelope of the dialect in which it was initialized."""
    async with running_chain(chain_of(1, dialect=dialect)) as harness:
        await play_handshake(harness)
        inner = {"method": "_x", "params": {}}
        harness.peer(0).send(
            {"method": f"{other}/successor", "params": inner},
            {"id": "r", "method": f"{other}/successor", "params": inner},
            {"method": f"{dialect}/successor", "params": inner},
        )
        note, request, another = await harness.agent.receive_all()
        assert note == another == {"method": "_x", "params": {}}
        assert request == {"id": request["id"], **inner}

        harness.agent.answer(request, "done")
        harness.agent.send(inner)
        assert await harness.peer(0).receive() == {"id": "r", "result": "done"}
        envelope = {"method": f"{dialect}/successor", "params": inner}
        assert await harness.peer(0).receive() == envelope
