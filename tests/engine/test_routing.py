"""What goes through an initialized chain, in memory."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from support.memory_chain import chain_of, play_handshake, proxies, running_chain, start
from support.peers.wire import MemoryComponent, PassProxy, Peer

from conductor.limits import Limits
from conductor.transport.io_loop import HIGH_WATERMARK

PROMPT = {"method": "session/prompt", "params": {"sessionId": "s1", "prompt": []}}
UPDATE = {"method": "session/update", "params": {"sessionId": "s1", "update": {"n": 1}}}
QUESTION = {"method": "session/request_permission", "params": {"sessionId": "s1"}}


def cancel(id):
    return {"method": "$/cancel_request", "params": {"requestId": id}}


def enveloped(message, dialect="proxy", **outer):
    return {**outer, "method": f"{dialect}/successor", "params": message}


def passing(count, **options):
    """A chain of proxies that pass everything on with ids of their own."""
    return lambda: [
        *proxies(count, make_peer=PassProxy, **options),
        MemoryComponent("agent", "agent"),
    ]


async def test_the_transcript_of_appendix_a(autojump_clock):
    """One proxy; ids are those of each hop, cancellations included."""
    async with running_chain(chain_of(1, dialect="_proxy")) as harness:
        await play_handshake(harness)
        client, proxy, agent = harness.client, harness.peer(0), harness.agent

        client.send({"id": 2, **PROMPT})
        assert await proxy.receive() == {"id": 2, **PROMPT}
        proxy.send(enveloped(PROMPT, "_proxy", id="p3"))
        assert await agent.receive() == {"id": 2, **PROMPT}

        agent.send(UPDATE)
        assert await proxy.receive() == enveloped(UPDATE, "_proxy")
        proxy.send(UPDATE)
        assert await client.receive() == UPDATE

        agent.send({"id": "a1", **QUESTION})
        assert await proxy.receive() == enveloped(QUESTION, "_proxy", id=3)
        proxy.send({"id": "p4", **QUESTION})
        assert await client.receive() == {"id": 1, **QUESTION}

        client.send(cancel(2))
        assert await proxy.receive() == cancel(2)
        proxy.send(enveloped(cancel("p3"), "_proxy"))
        assert await agent.receive() == cancel(2)

        agent.send(cancel("a1"))
        assert await proxy.receive() == cancel(3)
        proxy.send(cancel("p4"))
        assert await client.receive() == cancel(1)

        client.send({"id": 1, "error": {"code": -32800, "message": "Request cancelled"}})
        error = {"code": -32800, "message": "Request cancelled"}
        assert await proxy.receive() == {"id": "p4", "error": error}
        proxy.send({"id": 3, "error": error})
        assert await agent.receive() == {"id": "a1", "error": error}

        agent.send({"id": 2, "result": {"stopReason": "cancelled"}})
        assert await proxy.receive() == {"id": "p3", "result": {"stopReason": "cancelled"}}
        proxy.send({"id": 2, "result": {"stopReason": "cancelled"}})
        assert await client.receive() == {"id": 2, "result": {"stopReason": "cancelled"}}


@pytest.mark.parametrize("method", ["session/new", "session/load", "session/prompt"])
async def test_what_only_proxies_may_say_is_removed_from_results_of_an_agent(
    method, autojump_clock
):
    async with running_chain(chain_of(1)) as harness:
        await play_handshake(harness)
        proxy, agent = harness.peer(0), harness.agent
        inner = {"method": method, "params": {"sessionId": "s1"}}
        proxy.send(enveloped(inner, id=1))
        request = await agent.receive()
        meta = {"acp-conductor/handled": True, "kept": 1}
        agent.answer(request, {"sessionId": "s1", "_meta": meta})

        result = {"sessionId": "s1", "_meta": {"kept": 1}}
        assert await proxy.receive() == {"id": 1, "result": result}


async def test_a_late_response_is_dropped_and_the_connection_stays_open(autojump_clock):
    async with running_chain(passing(1)) as harness:
        await start(harness)
        harness.client.send({"id": 1, **PROMPT})
        request = await harness.agent.receive()
        harness.agent.answer(request, 1)
        harness.agent.answer(request, 2)
        harness.agent.send({"id": 77, "result": 3}, {"id": None, "result": 4}, UPDATE)

        assert await harness.client.receive_all() == [{"id": 1, "result": 1}, UPDATE]
        assert len(harness.components[-1].reports) == 3


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("method", ["_vendor/x", "no/such/method", "$/something", "", "x\0y"])
async def test_unknown_methods_are_forwarded_in_both_directions(method, count, autojump_clock):
    async with running_chain(passing(count)) as harness:
        await start(harness)
        harness.client.send({"id": 1, "method": method, "params": [1]}, {"method": method})

        request, notification = await harness.agent.receive_all()
        assert (request["method"], request["params"]) == (method, [1])
        assert notification["method"] == method
        harness.agent.refuse(request, -32601, "Method not found", method)
        harness.agent.send({"id": 0, "method": method, "params": {"a": 1}})

        answer, question = await harness.client.receive_all()
        error = {"code": -32601, "message": "Method not found", "data": method}
        assert answer == {"id": 1, "error": error}
        assert (question["method"], question["params"]) == (method, {"a": 1})


@pytest.mark.parametrize("count", [0, 1])
async def test_hundreds_of_messages_in_one_chunk_arrive_in_order(count, autojump_clock):
    """They are routed in steps; two methods in turn make no blocks."""
    async with running_chain(passing(count)) as harness:
        await start(harness)
        notes = [{"method": f"_{n % 2}", "params": {"n": n}} for n in range(600)]
        harness.agent.send(*notes)
        assert await harness.client.receive_all() == notes

        harness.agent.send(UPDATE)
        assert await harness.client.receive_all() == [UPDATE]


async def test_equal_ids_of_different_peers_do_not_collide(autojump_clock):
    async with running_chain(passing(2)) as harness:
        await start(harness)
        for id in (0, 1, 2, 3):
            harness.client.send({"id": id, "method": "from/client", "params": {"n": id}})
            harness.agent.send({"id": id, "method": "from/agent", "params": {"n": id}})

        to_agent, to_client = await harness.agent.receive_all(), await harness.client.receive_all()
        for request in to_agent:
            harness.agent.answer(request, {"to": request["params"]["n"]})
        for request in to_client:
            harness.client.answer(request, {"to": request["params"]["n"]})

        expected = [{"id": id, "result": {"to": id}} for id in (0, 1, 2, 3)]
        assert await harness.client.receive_all() == expected
        assert await harness.agent.receive_all() == expected


async def test_requests_of_one_peer_with_equal_ids_are_each_answered(autojump_clock):
    async with running_chain(passing(1)) as harness:
        await start(harness)
        harness.client.send(*[{"id": 1, "method": "m", "params": {"n": n}} for n in range(3)])

        for request in reversed(await harness.agent.receive_all()):
            harness.agent.answer(request, request["params"]["n"])

        answers = await harness.client.receive_all()
        assert answers == [{"id": 1, "result": n} for n in (2, 1, 0)]


# -- batches -----------------------------------------------------------------------------------


async def test_a_batch_is_forwarded_as_single_messages_and_answered_as_one_array(autojump_clock):
    async with running_chain(passing(1)) as harness:
        await start(harness)
        harness.client.send_line(
            b'[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"n"},7,'
            b'{"jsonrpc":"2.0","id":2,"method":"b"}]'
        )

        first, notification, second = await harness.agent.receive_all()
        assert [m["method"] for m in (first, notification, second)] == ["a", "n", "b"]
        harness.agent.answer(second, 2)
        harness.agent.send(UPDATE)
        assert await harness.client.receive_all() == [UPDATE]
        harness.agent.answer(first, 1)

        invalid = {"code": -32600, "message": "Invalid request"}
        assert await harness.client.receive_all() == [
            [{"id": 1, "result": 1}, {"id": None, "error": invalid}, {"id": 2, "result": 2}]
        ]


async def test_a_batch_may_contain_initialize(autojump_clock):
    async with running_chain(passing(1)) as harness:
        await harness.send()
        harness.client.send_line(
            b'[{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}},'
            b'{"jsonrpc":"2.0","id":1,"method":"a"}]'
        )
        await harness.send()
        harness.agent.answer(await harness.agent.receive(), {"protocolVersion": 1})
        harness.agent.answer(await harness.agent.receive(), 1)

        (initialized, answer) = await harness.client.receive()
        assert (initialized["id"], answer) == (0, {"id": 1, "result": 1})


async def test_batches_from_components_are_answered_as_arrays(autojump_clock):
    async with running_chain(chain_of(0)) as harness:
        await play_handshake(harness)
        harness.client.send({"id": 1, **PROMPT})
        await harness.agent.receive()
        harness.agent.send_line(
            b'[{"jsonrpc":"2.0","id":2,"result":1},{"jsonrpc":"2.0","id":"q","method":"ask"},7]'
        )

        answer, question = await harness.client.receive_all()
        assert answer == {"id": 1, "result": 1}
        harness.client.answer(question, "yes")
        assert await harness.agent.receive() == [{"id": "q", "result": "yes"}]


# -- misuse ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["proxy", "_proxy"])
@pytest.mark.parametrize("who", ["client", "agent"])
async def test_only_proxies_may_send_envelopes(who, dialect, autojump_clock):
    async with running_chain(chain_of(1)) as harness:
        await play_handshake(harness)
        peer = getattr(harness, who)
        peer.send(enveloped(PROMPT, dialect, id=5), enveloped(UPDATE, dialect))

        (reply,) = await peer.receive_all()
        assert (reply["id"], reply["error"]["code"]) == (5, -32600)
        assert await harness.peer(0).receive_all() == []


@pytest.mark.parametrize("method", ["proxy/initialize", "_proxy/initialize"])
async def test_only_the_conductor_may_send_proxy_initialize(method, autojump_clock):
    async with running_chain(chain_of(1)) as harness:
        await play_handshake(harness)
        init = {"method": method, "params": {"protocolVersion": 1}}
        harness.client.send({"id": 5, **init})
        harness.peer(0).send({"id": 5, **init}, enveloped(init, id=6))
        harness.agent.send({"id": 5, **init})

        problem = "initialize/proxy requests are only sent by the conductor"
        error = {"code": -32600, "message": "Invalid request", "data": problem}
        assert await harness.client.receive_all() == [{"id": 5, "error": error}]
        replies = [{"id": id, "error": error} for id in (5, 6)]
        assert await harness.peer(0).receive_all() == replies
        assert await harness.agent.receive_all() == [{"id": 5, "error": error}]


@pytest.mark.parametrize("inner", ["proxy/successor", "_proxy/successor"])
async def test_nested_envelopes_are_refused(inner, autojump_clock):
    async with running_chain(chain_of(2)) as harness:
        await play_handshake(harness)
        nested = enveloped({"method": inner, "params": UPDATE})
        harness.peer(0).send({"id": 1, **nested}, nested)

        (reply,) = await harness.peer(0).receive_all()
        assert (reply["id"], reply["error"]["code"]) == (1, -32600)
        assert await harness.peer(1).receive_all() == await harness.agent.receive_all() == []


async def test_an_envelope_without_params_passes_as_absent(autojump_clock):
    async with running_chain(chain_of(2)) as harness:
        await play_handshake(harness)
        harness.peer(0).send(enveloped({"method": "a"}), enveloped({"method": "a", "params": None}))
        harness.peer(1).send({"method": "b"})

        assert await harness.peer(1).receive_all() == [{"method": "a"}, {"method": "a"}]
        assert await harness.peer(0).receive() == enveloped({"method": "b", "params": None})


async def test_the_meta_of_an_envelope_is_not_forwarded(autojump_clock):
    async with running_chain(chain_of(2)) as harness:
        await play_handshake(harness)
        inner = {"method": "a", "params": {"_meta": {"kept": 1}}, "_meta": {"hop": 1}}
        harness.peer(0).send(enveloped(inner))

        assert await harness.peer(1).receive() == {"method": "a", "params": {"_meta": {"kept": 1}}}


# -- invalid lines -----------------------------------------------------------------------------


async def test_invalid_lines_of_a_component_are_logged_with_its_name_and_not_answered(
    autojump_clock,
):
    async with running_chain(chain_of(0)) as harness:
        await play_handshake(harness)
        for line in [b"Loading model...", b"", b"{}", b"[]", b"\x1b[0m\x1b[?25h", b"\xff\xfe"]:
            harness.agent.send_line(line)
        harness.agent.send_bytes(b'\x1b[32m{"jsonrpc":"2.0","method":"n"}\n')

        assert await harness.client.receive_all() == [{"method": "n"}]
        assert await harness.agent.receive_all() == []
        assert [event for event, _ in harness.components[0].reports] == [
            "malformed message"
        ] * 5  # the blank line is none


async def test_a_message_over_the_limit_is_refused_from_client_and_agent(autojump_clock):
    async with running_chain(chain_of(0), limits=Limits(max_message_bytes=1000)) as harness:
        await play_handshake(harness)
        harness.client.send({"id": 1, "method": "big", "params": ["x" * 2000]}, {"id": 2, **PROMPT})

        refusal = await harness.client.receive()
        assert (refusal["id"], refusal["error"]["code"]) == (1, -32600)
        request = await harness.agent.receive()
        assert request["method"] == "session/prompt"
        harness.agent.answer(request, "x" * 2000)
        reply = await harness.client.receive()
        assert (reply["id"], reply["error"]["code"]) == (2, -32603)
        assert "over the limit of 1000 bytes" in reply["error"]["data"]["reason"]


# -- a component is lost -----------------------------------------------------------------------


async def test_equal_ids_are_all_answered_when_a_component_is_lost(autojump_clock):
    async with running_chain(chain_of(0)) as harness:
        await play_handshake(harness)
        await harness.send(*[{"id": 1, **PROMPT}] * 3)
        harness.agent.close()

        await harness.client.wait_end()
        answers = await harness.client.receive_all()
        assert [answer["id"] for answer in answers] == [1, 1, 1]


async def test_messages_sent_before_a_component_ended_are_delivered_before_its_error(
    autojump_clock,
):
    async with running_chain(passing(1)) as harness:
        await start(harness)
        harness.client.send({"id": 1, **PROMPT}, {"id": 2, **PROMPT})
        first, _ = await harness.agent.receive_all()
        harness.agent.send(UPDATE)
        harness.agent.answer(first, 1)
        harness.agent.send_bytes(b'{"jsonrpc":"2.0","method":"last"}')  # without a newline
        harness.agent.close()

        assert await harness.client.receive() == UPDATE
        assert await harness.client.receive() == {"id": 1, "result": 1}
        rest = [await harness.client.receive() for _ in range(2)]
        assert {"method": "last"} in rest
        (answer,) = [message for message in rest if "id" in message]
        assert answer["error"]["data"]["component"] == "agent"


# -- the client goes ---------------------------------------------------------------------------


async def test_messages_in_flight_at_eof_of_the_client_are_delivered(autojump_clock):
    async with running_chain(passing(2)) as harness:
        await start(harness)
        await harness.send({"id": 1, **PROMPT}, {"method": "last"})
        harness.client.close()
        await harness.send()

        request, last, cancelled = await harness.agent.receive_all()
        harness.agent.answer(request, "done")

        assert last == {"method": "last"}
        assert cancelled["method"] == "session/cancel"
        assert await harness.client.receive() == {"id": 1, "result": "done"}
        assert (await harness.wait_ended()).reason == "client"


async def test_a_component_that_does_not_end_does_not_delay_the_end_of_those_after_it(
    autojump_clock,
):
    async with running_chain(passing(1), stop_timeout=4.0) as harness:
        await start(harness)
        harness.peer(0).stays = True
        before = trio.current_time()

        harness.chain.stop()
        await harness.agent.wait_end()

        assert trio.current_time() - before == pytest.approx(2.0)


# -- a slow reader -----------------------------------------------------------------------------


def sizes(harness):
    """The most that waits anywhere."""
    return max(
        harness.chain.client_end.connection.write_buffer.size,
        *(component.backlog() for component in harness.components),
    )


@pytest.mark.parametrize("count", [0, 1, pytest.param(3, marks=pytest.mark.slow)])
async def test_memory_is_bounded_while_the_client_does_not_read(count, autojump_clock):
    """The agent streams 20 MB; it is slowed down, nothing is lost, cancelling still works."""
    async with running_chain(passing(count), client=partial(Peer, reads=False)) as harness:
        await harness.send({"id": 0, "method": "initialize", "params": {"protocolVersion": 1}})
        harness.agent.answer(await harness.agent.receive(), {"protocolVersion": 1})
        await harness.send({"id": 1, **PROMPT})
        request = await harness.agent.receive()
        update = {**UPDATE, "params": {"text": "x" * 10_000}}
        harness.agent.send(*[update] * 2000)
        await harness.send(cancel(1))

        assert harness.agent.unsent() > 10_000_000
        assert sizes(harness) < HIGH_WATERMARK + 500_000
        assert await harness.agent.receive() == cancel(request["id"])

        harness.agent.answer(request, "done")
        harness.client.start_reading()
        messages = [await harness.client.receive() for _ in range(2002)]
        assert messages[1:2001] == [update] * 2000
        assert messages[2001] == {"id": 1, "result": "done"}
        assert sizes(harness) == 0


@pytest.mark.parametrize("count", [0, 1, 3, pytest.param(8, marks=pytest.mark.slow)])
async def test_full_buffers_in_both_directions_do_not_deadlock(count, autojump_clock):
    async with running_chain(passing(count)) as harness:
        await start(harness)
        text = "x" * 20_000
        for n in range(300):
            harness.client.send({"method": "down", "params": {"n": n, "text": text}})
            harness.agent.send({"method": "up", "params": {"n": n, "text": text}})
        most = 0
        while len(harness.client.lines) < 300 or len(harness.agent.lines) < 300:
            before = len(harness.client.lines), len(harness.agent.lines), harness.client.unsent()
            await _step()
            most = max(most, sizes(harness))
            if before == (
                len(harness.client.lines),
                len(harness.agent.lines),
                harness.client.unsent(),
            ):
                await harness.send()
                assert len(harness.client.lines) == len(harness.agent.lines) == 300, "deadlock"

        assert [m["params"]["n"] for m in await harness.client.receive_all()] == list(range(300))
        assert [m["params"]["n"] for m in await harness.agent.receive_all()] == list(range(300))
        assert most < 2 * HIGH_WATERMARK


async def _step():
    for _ in range(20):
        await trio.lowlevel.checkpoint()
