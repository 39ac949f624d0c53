"""What goes through an initialized chain, in memory."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from support.memory_chain import chain_of, proxies, seated, shake_hands
from support.memory_component import MemoryComponent
from support.raw_peers import PassProxy
from support.scripted_peer import Peer

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


async def start(table):
    """Initialize a chain whose proxies play for themselves."""
    await table.send({"id": 0, "method": "initialize", "params": {"protocolVersion": 1}})
    table.agent.answer(await table.agent.receive(), {"protocolVersion": 1})
    assert (await table.client.receive())["id"] == 0


async def test_the_transcript_of_appendix_a(autojump_clock):
    """One proxy; ids are those of each hop, cancellations included."""
    async with seated(chain_of(1, dialect="_proxy")) as table:
        await shake_hands(table)
        client, proxy, agent = table.client, table.peer(0), table.agent

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


@pytest.mark.parametrize("dialect", ["proxy", "_proxy"])
@pytest.mark.parametrize("count", [0, 1, 3])
async def test_a_cancellation_arrives_once_per_hop_and_so_does_the_response(
    count, dialect, autojump_clock
):
    async with seated(passing(count, dialect=dialect)) as table:
        await start(table)
        table.client.send({"id": "x", **PROMPT})
        request = await table.agent.receive()

        table.client.send(cancel("x"), cancel("x"), cancel("unknown"), cancel(None))
        assert await table.agent.receive_all() == [cancel(request["id"])]
        table.agent.answer(request, {"stopReason": "cancelled"})

        answer = {"id": "x", "result": {"stopReason": "cancelled"}}
        assert await table.client.receive() == answer
        assert all(len(table.peer(k).cancelled) == 1 for k in range(count))
        table.client.send(cancel("x"))
        assert await table.agent.receive_all() == await table.client.receive_all() == []


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_an_agent_cancels_its_request_to_the_client(count, autojump_clock):
    async with seated(passing(count)) as table:
        await start(table)
        table.agent.send({"id": 0, **QUESTION}, cancel(0), cancel(0))

        question = await table.client.receive()
        assert await table.client.receive_all() == [cancel(question["id"])]
        table.client.refuse(question, -32800, "Request cancelled")

        error = {"code": -32800, "message": "Request cancelled"}
        assert await table.agent.receive() == {"id": 0, "error": error}


async def test_a_late_response_is_dropped_and_the_connection_stays_open(autojump_clock):
    async with seated(passing(1)) as table:
        await start(table)
        table.client.send({"id": 1, **PROMPT})
        request = await table.agent.receive()
        table.agent.answer(request, 1)
        table.agent.answer(request, 2)
        table.agent.send({"id": 77, "result": 3}, {"id": None, "result": 4}, UPDATE)

        assert await table.client.receive_all() == [{"id": 1, "result": 1}, UPDATE]
        assert len(table.components[-1].reports) == 3


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("method", ["_vendor/x", "no/such/method", "$/something", "", "x\0y"])
async def test_unknown_methods_are_forwarded_in_both_directions(method, count, autojump_clock):
    async with seated(passing(count)) as table:
        await start(table)
        table.client.send({"id": 1, "method": method, "params": [1]}, {"method": method})

        request, notification = await table.agent.receive_all()
        assert (request["method"], request["params"]) == (method, [1])
        assert notification["method"] == method
        table.agent.refuse(request, -32601, "Method not found", method)
        table.agent.send({"id": 0, "method": method, "params": {"a": 1}})

        answer, question = await table.client.receive_all()
        error = {"code": -32601, "message": "Method not found", "data": method}
        assert answer == {"id": 1, "error": error}
        assert (question["method"], question["params"]) == (method, {"a": 1})


async def test_equal_ids_of_different_peers_do_not_collide(autojump_clock):
    async with seated(passing(2)) as table:
        await start(table)
        for id in (0, 1, 2, 3):
            table.client.send({"id": id, "method": "from/client", "params": {"n": id}})
            table.agent.send({"id": id, "method": "from/agent", "params": {"n": id}})

        to_agent, to_client = await table.agent.receive_all(), await table.client.receive_all()
        for request in to_agent:
            table.agent.answer(request, {"to": request["params"]["n"]})
        for request in to_client:
            table.client.answer(request, {"to": request["params"]["n"]})

        expected = [{"id": id, "result": {"to": id}} for id in (0, 1, 2, 3)]
        assert await table.client.receive_all() == expected
        assert await table.agent.receive_all() == expected


async def test_requests_of_one_peer_with_equal_ids_are_each_answered(autojump_clock):
    async with seated(passing(1)) as table:
        await start(table)
        table.client.send(*[{"id": 1, "method": "m", "params": {"n": n}} for n in range(3)])

        for request in reversed(await table.agent.receive_all()):
            table.agent.answer(request, request["params"]["n"])

        answers = await table.client.receive_all()
        assert answers == [{"id": 1, "result": n} for n in (2, 1, 0)]


async def test_responses_keep_their_order_among_notifications(autojump_clock):
    async with seated(passing(3)) as table:
        await start(table)
        table.client.send({"id": 1, **PROMPT}, {"id": 2, **PROMPT})
        first, second = await table.agent.receive_all()

        table.agent.send(UPDATE)
        table.agent.answer(second, 2)
        table.agent.send(UPDATE, {"id": 0, **QUESTION}, UPDATE)
        table.agent.answer(first, 1)
        table.agent.send(UPDATE)

        came = await table.client.receive_all()
        assert [message.get("result", message.get("method")) for message in came] == [
            "session/update",
            2,
            "session/update",
            "session/request_permission",
            "session/update",
            1,
            "session/update",
        ]


# -- batches -----------------------------------------------------------------------------------


async def test_a_batch_is_forwarded_as_single_messages_and_answered_as_one_array(autojump_clock):
    async with seated(passing(1)) as table:
        await start(table)
        table.client.send_line(
            b'[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"n"},7,'
            b'{"jsonrpc":"2.0","id":2,"method":"b"}]'
        )

        first, notification, second = await table.agent.receive_all()
        assert [m["method"] for m in (first, notification, second)] == ["a", "n", "b"]
        table.agent.answer(second, 2)
        table.agent.send(UPDATE)
        assert await table.client.receive_all() == [UPDATE]
        table.agent.answer(first, 1)

        invalid = {"code": -32600, "message": "Invalid request"}
        assert await table.client.receive_all() == [
            [{"id": 1, "result": 1}, {"id": None, "error": invalid}, {"id": 2, "result": 2}]
        ]


async def test_a_batch_may_contain_initialize(autojump_clock):
    async with seated(passing(1)) as table:
        await table.send()
        table.client.send_line(
            b'[{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}},'
            b'{"jsonrpc":"2.0","id":1,"method":"a"}]'
        )
        await table.send()
        table.agent.answer(await table.agent.receive(), {"protocolVersion": 1})
        table.agent.answer(await table.agent.receive(), 1)

        (initialized, answer) = await table.client.receive()
        assert (initialized["id"], answer) == (0, {"id": 1, "result": 1})


async def test_batches_from_components_are_answered_as_arrays(autojump_clock):
    async with seated(chain_of(0)) as table:
        await shake_hands(table)
        table.client.send({"id": 1, **PROMPT})
        await table.agent.receive()
        table.agent.send_line(
            b'[{"jsonrpc":"2.0","id":2,"result":1},{"jsonrpc":"2.0","id":"q","method":"ask"},7]'
        )

        answer, question = await table.client.receive_all()
        assert answer == {"id": 1, "result": 1}
        table.client.answer(question, "yes")
        assert await table.agent.receive() == [{"id": "q", "result": "yes"}]


# -- misuse ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["proxy", "_proxy"])
@pytest.mark.parametrize("who", ["client", "agent"])
async def test_only_proxies_may_send_envelopes(who, dialect, autojump_clock):
    async with seated(chain_of(1)) as table:
        await shake_hands(table)
        peer = getattr(table, who)
        peer.send(enveloped(PROMPT, dialect, id=5), enveloped(UPDATE, dialect))

        (reply,) = await peer.receive_all()
        assert (reply["id"], reply["error"]["code"]) == (5, -32600)
        assert await table.peer(0).receive_all() == []


@pytest.mark.parametrize("method", ["proxy/initialize", "_proxy/initialize"])
async def test_only_the_conductor_may_send_proxy_initialize(method, autojump_clock):
    async with seated(chain_of(1)) as table:
        await shake_hands(table)
        init = {"method": method, "params": {"protocolVersion": 1}}
        table.client.send({"id": 5, **init})
        table.peer(0).send({"id": 5, **init}, enveloped(init, id=6))
        table.agent.send({"id": 5, **init})

        problem = "initialize/proxy requests are only sent by the conductor"
        error = {"code": -32600, "message": "Invalid request", "data": problem}
        assert await table.client.receive_all() == [{"id": 5, "error": error}]
        replies = [{"id": id, "error": error} for id in (5, 6)]
        assert await table.peer(0).receive_all() == replies
        assert await table.agent.receive_all() == [{"id": 5, "error": error}]


@pytest.mark.parametrize("inner", ["proxy/successor", "_proxy/successor"])
async def test_nested_envelopes_are_refused(inner, autojump_clock):
    async with seated(chain_of(2)) as table:
        await shake_hands(table)
        nested = enveloped({"method": inner, "params": UPDATE})
        table.peer(0).send({"id": 1, **nested}, nested)

        (reply,) = await table.peer(0).receive_all()
        assert (reply["id"], reply["error"]["code"]) == (1, -32600)
        assert await table.peer(1).receive_all() == await table.agent.receive_all() == []


async def test_an_envelope_without_params_passes_as_absent(autojump_clock):
    async with seated(chain_of(2)) as table:
        await shake_hands(table)
        table.peer(0).send(enveloped({"method": "a"}), enveloped({"method": "a", "params": None}))
        table.peer(1).send({"method": "b"})

        assert await table.peer(1).receive_all() == [{"method": "a"}, {"method": "a"}]
        assert await table.peer(0).receive() == enveloped({"method": "b", "params": None})


async def test_the_meta_of_an_envelope_is_not_forwarded(autojump_clock):
    async with seated(chain_of(2)) as table:
        await shake_hands(table)
        inner = {"method": "a", "params": {"_meta": {"kept": 1}}, "_meta": {"hop": 1}}
        table.peer(0).send(enveloped(inner))

        assert await table.peer(1).receive() == {"method": "a", "params": {"_meta": {"kept": 1}}}


# -- noise -------------------------------------------------------------------------------------


async def test_invalid_lines_of_a_component_are_logged_with_its_name_and_not_answered(
    autojump_clock,
):
    async with seated(chain_of(0)) as table:
        await shake_hands(table)
        for line in [b"Loading model...", b"", b"{}", b"[]", b"\x1b[0m\x1b[?25h", b"\xff\xfe"]:
            table.agent.send_line(line)
        table.agent.send_bytes(b'\x1b[32m{"jsonrpc":"2.0","method":"n"}\n')

        assert await table.client.receive_all() == [{"method": "n"}]
        assert await table.agent.receive_all() == []
        assert [event for event, _ in table.components[0].reports] == [
            "malformed message"
        ] * 5  # the blank line is none
        assert table.components[0].link.connection.skipped_lines == 6


async def test_a_malformed_response_is_an_error_that_names_the_component(autojump_clock):
    async with seated(passing(1)) as table:
        await start(table)
        table.client.send({"id": 1, **PROMPT})
        request = await table.agent.receive()
        table.agent.send({"id": request["id"], "result": 1, "error": {"code": 1, "message": "x"}})

        reply = await table.client.receive()
        assert (reply["id"], reply["error"]["code"]) == (1, -32603)
        assert reply["error"]["data"]["component"] == "agent"


async def test_a_message_over_the_limit_is_refused_from_client_and_agent(autojump_clock):
    async with seated(chain_of(0), limits=Limits(max_message_bytes=1000)) as table:
        await shake_hands(table)
        table.client.send({"id": 1, "method": "big", "params": ["x" * 2000]}, {"id": 2, **PROMPT})

        refusal = await table.client.receive()
        assert (refusal["id"], refusal["error"]["code"]) == (1, -32600)
        request = await table.agent.receive()
        assert request["method"] == "session/prompt"
        table.agent.answer(request, "x" * 2000)
        reply = await table.client.receive()
        assert (reply["id"], reply["error"]["code"]) == (2, -32603)
        assert "over the limit of 1000 bytes" in reply["error"]["data"]["reason"]


async def test_a_lone_surrogate_passes_every_hop(autojump_clock):
    async with seated(passing(2)) as table:
        await start(table)
        params = rb'{"sessionId":"s1","update":{"text":"half \ud83d"}}'
        table.agent.send_line(b'{"jsonrpc":"2.0","method":"session/update","params":%s}' % params)

        assert params in await table.client.receive_line()


# -- a component is lost -----------------------------------------------------------------------


@pytest.mark.parametrize("lost", [0, 1, 2])
async def test_every_open_request_is_answered_once_when_a_component_is_lost(lost, autojump_clock):
    async with seated(passing(2)) as table:
        await start(table)
        for id in (1, "two", None):
            table.client.send({"id": id, **PROMPT})
        table.client.send_line(
            b'[{"jsonrpc":"2.0","id":4,"method":"m"},{"jsonrpc":"2.0","id":5,"method":"m"}]'
        )
        table.agent.send(UPDATE)
        assert await table.client.receive() == UPDATE

        table.peer(lost).close()

        ending = await table.wait_ended()
        assert (ending.reason, ending.error.component) == ("failed", table.components[lost].name)
        await table.client.wait_end()
        came = await table.client.receive_all()
        (batch,) = [each for each in came if isinstance(each, list)]
        answers = [each for each in came if not isinstance(each, list)] + batch
        assert sorted(str(answer["id"]) for answer in answers) == ["1", "4", "5", "None", "two"]
        for answer in answers:
            assert answer["error"]["code"] == -32603
            assert table.components[lost].name in answer["error"]["message"]
            assert answer["error"]["data"]["component"] == table.components[lost].name


async def test_equal_ids_are_all_answered_when_a_component_is_lost(autojump_clock):
    async with seated(chain_of(0)) as table:
        await shake_hands(table)
        await table.send(*[{"id": 1, **PROMPT}] * 3)
        table.agent.close()

        await table.client.wait_end()
        answers = await table.client.receive_all()
        assert [answer["id"] for answer in answers] == [1, 1, 1]


async def test_equal_ids_are_all_answered_when_the_chain_ends(autojump_clock):
    async with seated(chain_of(0), stop_timeout=1.0) as table:
        await shake_hands(table)
        table.agent.stays = True
        await table.send(*[{"id": 1, **PROMPT}] * 3)
        table.chain.stop()

        await table.client.wait_end()
        answers = await table.client.receive_all()
        assert [answer["id"] for answer in answers] == [1, 1, 1]


async def test_requests_of_a_lost_component_are_cancelled_at_the_client(autojump_clock):
    async with seated(chain_of(0)) as table:
        await shake_hands(table)
        table.agent.send({"id": 0, **QUESTION})
        question = await table.client.receive()
        table.agent.close()

        assert await table.client.receive() == cancel(question["id"])
        table.client.answer(question, "too late")
        await table.wait_ended()


async def test_messages_sent_before_a_component_ended_are_delivered_before_its_error(
    autojump_clock,
):
    async with seated(passing(1)) as table:
        await start(table)
        table.client.send({"id": 1, **PROMPT}, {"id": 2, **PROMPT})
        first, _ = await table.agent.receive_all()
        table.agent.send(UPDATE)
        table.agent.answer(first, 1)
        table.agent.send_bytes(b'{"jsonrpc":"2.0","method":"last"}')  # without a newline
        table.agent.close()

        assert await table.client.receive() == UPDATE
        assert await table.client.receive() == {"id": 1, "result": 1}
        rest = [await table.client.receive() for _ in range(2)]
        assert {"method": "last"} in rest
        (answer,) = [message for message in rest if "id" in message]
        assert answer["error"]["data"]["component"] == "agent"


# -- the client goes ---------------------------------------------------------------------------


async def test_messages_in_flight_at_eof_of_the_client_are_delivered(autojump_clock):
    async with seated(passing(2)) as table:
        await start(table)
        await table.send({"id": 1, **PROMPT}, {"method": "last"})
        table.client.close()
        await table.send()

        request, last = await table.agent.receive_all()
        table.agent.answer(request, "done")

        assert last == {"method": "last"}
        assert await table.client.receive() == {"id": 1, "result": "done"}
        assert (await table.wait_ended()).reason == "client"


async def test_an_unanswered_request_is_answered_with_an_error_at_the_end_of_the_chain(
    autojump_clock,
):
    async with seated(chain_of(0), stop_timeout=1.0) as table:
        await shake_hands(table)
        table.agent.stays = True
        await table.send({"id": 1, **PROMPT})
        table.client.close()

        reply = await _patient(table)
        assert (reply["id"], reply["error"]["code"]) == (1, -32603)
        assert table.components[0].terminated


async def _patient(table):
    await table.client.wait_end()
    (message,) = await table.client.receive_all()
    return message


# -- a slow reader -----------------------------------------------------------------------------


def sizes(table):
    """The most that waits anywhere."""
    return max(
        table.chain._connection.write_buffer.size,
        *(component.backlog() for component in table.components),
    )


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_memory_is_bounded_while_the_client_does_not_read(count, autojump_clock):
    """The agent streams 20 MB; it is slowed down, nothing is lost, cancelling still works."""
    async with seated(passing(count), client=partial(Peer, reads=False)) as table:
        await table.send({"id": 0, "method": "initialize", "params": {"protocolVersion": 1}})
        table.agent.answer(await table.agent.receive(), {"protocolVersion": 1})
        await table.send({"id": 1, **PROMPT})
        request = await table.agent.receive()
        update = {**UPDATE, "params": {"text": "x" * 10_000}}
        table.agent.send(*[update] * 2000)
        await table.send(cancel(1))

        assert table.agent.unsent() > 10_000_000
        assert sizes(table) < HIGH_WATERMARK + 500_000
        assert await table.agent.receive() == cancel(request["id"])

        table.agent.answer(request, "done")
        table.client.start_reading()
        messages = [await table.client.receive() for _ in range(2002)]
        assert messages[1:2001] == [update] * 2000
        assert messages[2001] == {"id": 1, "result": "done"}
        assert sizes(table) == 0


@pytest.mark.parametrize("count", [0, 1, 3, 8])
async def test_full_buffers_in_both_directions_do_not_deadlock(count, autojump_clock):
    async with seated(passing(count)) as table:
        await start(table)
        text = "x" * 20_000
        for n in range(300):
            table.client.send({"method": "down", "params": {"n": n, "text": text}})
            table.agent.send({"method": "up", "params": {"n": n, "text": text}})
        most = 0
        while len(table.client.lines) < 300 or len(table.agent.lines) < 300:
            before = len(table.client.lines), len(table.agent.lines), table.client.unsent()
            await _step()
            most = max(most, sizes(table))
            if before == (len(table.client.lines), len(table.agent.lines), table.client.unsent()):
                await table.send()
                assert len(table.client.lines) == len(table.agent.lines) == 300, "deadlock"

        assert [m["params"]["n"] for m in await table.client.receive_all()] == list(range(300))
        assert [m["params"]["n"] for m in await table.agent.receive_all()] == list(range(300))
        assert most < 2 * HIGH_WATERMARK


async def _step():
    for _ in range(20):
        await trio.lowlevel.checkpoint()
