"""Each request gets exactly one answer, after crashes, cancellations and malformed messages."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager

import pytest
import trio
from support.memory_chain import INITIALIZE, hops, play_handshake, running_chain, start
from support.peers.wire import EchoAgent, MemoryComponent
from support.plugins import PassAll
from support.raw_json import TOO_DEEP, nested
from trio.testing import wait_all_tasks_blocked

from conductor.limits import MAX_DEPTH
from conductor.plugins.plugin_component import PluginComponent
from conductor.proxy import Proxy, on, on_cancel

PROMPT = {"method": "session/prompt", "params": {"sessionId": "s1", "prompt": []}}
CANCELLED = {"code": -32800, "message": "Request cancelled"}
CHAINS = [[], ["proxy"], ["_proxy"], ["handlers"], ["nested"], ["_proxy", "handlers", "nested"]]
chains = pytest.mark.parametrize("kinds", CHAINS, ids=" ".join)


def cancel(id):
    return {"method": "$/cancel_request", "params": {"requestId": id}}


def single(came):
    """All messages, members of batches included."""
    return [message for each in came for message in (each if isinstance(each, list) else [each])]


def answered(came):
    """How often each request was answered."""
    return Counter(message["id"] for message in single(came) if "method" not in message)


def errors(came):
    return [message["error"] for message in single(came) if "error" in message]


async def test_half_an_emoji_in_a_cancellation_does_not_keep_it_back(autojump_clock):
    async with running_chain(hops("proxy")) as harness:
        await start(harness)
        cancellation = cancel(1)
        cancellation["params"]["_meta"] = {"\ud83d": "\ud83d"}
        await harness.send({"id": 1, "method": "_t/request"}, cancellation)

        _, cancelled = await harness.agent.receive_all()
        assert cancelled["method"] == "$/cancel_request"


@chains
async def test_a_cancelled_request_is_cancelled_once_and_answered_once(kinds, autojump_clock):
    """With the agent's own response, given before or after the cancellation reaches it."""
    requests = [{"id": id, "method": "_t/request", "params": {"n": id}} for id in range(4)]
    async with running_chain(hops(*kinds)) as harness:
        await start(harness)
        await harness.send(*requests)
        ids = [request["id"] for request in await harness.agent.receive_all()]
        results = [{"result": "done"}, {"error": CANCELLED}, {"result": None}, {"result": "late"}]
        harness.agent.send({"id": ids[3], **results[3]})
        await wait_all_tasks_blocked()
        await harness.send(*[cancel(n) for n in (0, 1, 2, 3, 0, 99)])

        assert await harness.agent.receive_all() == [cancel(id) for id in ids[:3]]
        for id, result in zip(ids, results, strict=True):
            harness.agent.send({"id": id, **result})

        came = await harness.client.receive_all()
        assert sorted(came, key=lambda each: each["id"]) == [
            {"id": n, **result} for n, result in enumerate(results)
        ]


class Cancels(Proxy):
    """Says how often a session was cancelled."""

    @on_cancel
    async def count(self, session):
        await session.say("cancelled")


@pytest.mark.parametrize("kinds", [[], ["proxy", "_proxy"], ["handlers", "nested"]], ids=" ".join)
async def test_a_notification_with_an_id_is_delivered_once_and_answered(kinds, autojump_clock):
    """In its place among the other messages. acp.el sends `session/cancel` so."""
    cancel_turn = {"method": "session/cancel", "params": {"sessionId": "s1"}}
    note = {"method": "_t/note", "params": {}}
    said = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x"}}
    update = {"method": "session/update", "params": {"sessionId": "s1", "update": said}}
    done = {"method": "elicitation/complete", "params": {"elicitationId": "e"}}
    components = hops(*kinds)
    async with running_chain([PluginComponent("counts", Cancels(), "proxy"), *components]) as chain:
        await start(chain)
        await chain.send({"id": 1, **PROMPT}, note, {"id": "c", **cancel_turn}, note)
        prompt, *others = await chain.agent.receive_all()
        assert others == [note, cancel_turn, note]
        answer, counted = await chain.client.receive_all()
        assert answer == {"id": "c", "result": {}}
        assert counted["params"]["update"]["content"]["text"] == "cancelled"

        chain.agent.send(note, {"id": 0, **update}, {"id": 1, **done}, note)
        assert await chain.client.receive_all() == [note, update, done, note]
        assert await chain.agent.receive_all() == [{"id": id, "result": {}} for id in (0, 1)]

        await chain.send({"id": "$", **cancel(1)})
        assert await chain.agent.receive_all() == [cancel(prompt["id"])]
        assert await chain.client.receive_all() == [{"id": "$", "result": {}}]


@pytest.mark.parametrize("dialect", ["proxy", "_proxy"])
async def test_a_proxy_may_send_a_notification_with_an_id_to_its_successor(dialect, autojump_clock):
    proxy = MemoryComponent("p", dialect=dialect)
    async with running_chain([proxy, MemoryComponent("agent", "agent")]) as chain:
        await play_handshake(chain)
        inner = {"method": "session/cancel", "params": {"sessionId": "s1"}}
        proxy.peer.send({"id": "c", "method": f"{dialect}/successor", "params": inner})
        assert await chain.agent.receive_all() == [inner]
        assert await proxy.peer.receive_all() == [{"id": "c", "result": {}}]

        proxy.peer.send({"id": "p", "method": f"{dialect}/successor", "params": PROMPT})
        (prompt,) = await chain.agent.receive_all()
        proxy.peer.send({"id": "$", "method": f"{dialect}/successor", "params": cancel("p")})
        assert await chain.agent.receive_all() == [cancel(prompt["id"])]
        assert await proxy.peer.receive_all() == [{"id": "$", "result": {}}]


@pytest.mark.parametrize("count", [1, 3])
async def test_a_request_without_an_id_reaches_no_component(count, autojump_clock):
    """It cannot be answered: with it, an agent would write a file past the proxies."""
    note = {"method": "_t/note", "params": {}}
    write = {"method": "fs/write_text_file", "params": {"sessionId": "s1", "path": "/x"}}
    prompt = {"method": "session/prompt", "params": {"sessionId": "s1"}}
    proxy = MemoryComponent("p")
    async with running_chain([proxy, MemoryComponent("agent", "agent")]) as chain:
        await play_handshake(chain)
        chain.client.send(*[prompt] * count, {"method": "initialize", "params": {}}, note)
        assert await proxy.peer.receive_all() == [note]
        envelopes = [{"method": "proxy/successor", "params": each} for each in (prompt, note)]
        proxy.peer.send(*envelopes[:1] * count, *envelopes[1:])
        assert await chain.agent.receive_all() == [note]
        chain.agent.send(*[write] * count, note)
        assert await proxy.peer.receive_all() == [{"method": "proxy/successor", "params": note}]
        proxy.peer.send(*[write] * count, note)
        assert await chain.client.receive_all() == [note]


RESULT = b'"result":{"stopReason":"end_turn"}'
MALFORMED = {
    "both": b'{"jsonrpc":"2.0","id":@,"result":1,"error":{"code":1,"message":"x"}}',
    "neither": b'{"jsonrpc":"2.0","id":@}',
    "error without code": b'{"jsonrpc":"2.0","id":@,"error":{"message":"x"}}',
    "error that is no object": b'{"jsonrpc":"2.0","id":@,"error":"x"}',
    "no version": b'{"id":@,%b}' % RESULT,
    "wrong version": b'{"jsonrpc":"1.0","id":@,%b}' % RESULT,
    "not UTF-8": b'{"jsonrpc":"2.0","id":@,"result":"\xff"}',
    "cut": b'{"jsonrpc":"2.0","id":@,"result":{"stopReason":',
    "too deep": b'{"jsonrpc":"2.0","id":@,"result":%b}' % nested(TOO_DEEP),
    "in a batch": b'[{"jsonrpc":"2.0","id":@,"result":1,"error":{"code":1,"message":"x"}},7]',
    "with colors": b'\x1b[32m{"jsonrpc":"2.0","id":@,%b}' % RESULT,
    "twice in a batch": b'[{"jsonrpc":"2.0","id":@,%b},{"jsonrpc":"2.0","id":@,%b}]'
    % (RESULT, RESULT),
}


@pytest.mark.parametrize("kinds", [[], ["proxy", "handlers"]], ids=" ".join)
async def test_a_request_with_a_malformed_response_is_answered_once(kinds, autojump_clock):
    async with running_chain(hops(*kinds)) as harness:
        await start(harness)
        for what, line in MALFORMED.items():
            await harness.send({"id": what, "method": "_t/request", "params": {}})
            (request,) = await harness.agent.receive_all()
            harness.agent.send_line(line.replace(b"@", b"%d" % request["id"]))
            assert answered(await harness.client.receive_all()) == {what: 1}
            harness.agent.answer(request, "again")
            assert await harness.client.receive_all() == []

        await harness.send({"id": "a", "method": "_t/request", "params": {}})
        (request,) = await harness.agent.receive_all()
        harness.agent.send({"id": str(request["id"]), "result": "its id has another type"})
        harness.agent.answer(request, "its answer")
        assert await harness.client.receive_all() == [{"id": "a", "result": "its answer"}]


class Reads(Proxy):
    """Reads the values of what it passes on."""

    @on("_t/request")
    async def pass_request(self, params: dict, forward):
        return await forward(params)

    @on("_t/note")
    async def pass_note(self, params: dict, forward):
        await forward(params)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 900, 965, 5000])
async def test_what_a_handler_cannot_read_is_one_error_of_its_sender(depth, autojump_clock):
    deep = b'{"a":%b}' % nested(depth - 1)
    flat = b'{"a":%b}' % nested(MAX_DEPTH - 1)
    text = b'{"jsonrpc":"2.0",%b"method":"%b","params":%b}'
    chain = [PluginComponent("reads", Reads(), "proxy"), *hops()]
    async with running_chain(chain) as harness:
        await start(harness)
        harness.client.send_line(text % (b'"id":"deep",', b"_t/request", deep))
        harness.client.send_line(text % (b"", b"_t/note", deep))
        harness.client.send_line(text % (b'"id":"flat",', b"_t/request", flat))
        (request,) = await harness.agent.receive_all()
        result = b'{"jsonrpc":"2.0","id":%d,"result":%b}'
        harness.agent.send_line(result % (request["id"], deep))

        all_came = await harness.client.receive_all()
        came = [each for each in all_came if each["id"] is not None]  # Python 3.11 reads no note
        assert answered(came) == {"deep": 1, "flat": 1}
        assert len(errors(came)) == 2


@pytest.mark.parametrize("lost", [0, 1, 2, -1])
@pytest.mark.parametrize("half", [b"", b'{"jsonrpc":"2.0","method":"session/upd'])
async def test_every_open_request_is_answered_once_when_a_component_is_lost(
    lost, half, autojump_clock
):
    """Also those in a nested chain; with the name of the component."""
    async with running_chain(hops("proxy", "nested", "_proxy", "handlers")) as harness:
        await start(harness)
        ids = [1, "two", None]
        await harness.send(*[{"id": id, "method": "_t/request"} for id in ids], {"id": 4, **PROMPT})
        harness.client.send_line(
            b'[{"jsonrpc":"2.0","id":5,"method":"m"},{"jsonrpc":"2.0","id":6,"method":"m"}]'
        )
        first, *_ = await harness.agent.receive_all()
        harness.agent.answer(first, "in time")
        harness.agent.send_bytes(half)
        await harness.send()

        harness.components[lost].crash()

        ending, name = await harness.wait_ended(), harness.components[lost].name
        assert (ending.reason, ending.error.component) == ("failed", name)
        came = await harness.client.receive_all()
        assert answered(came) == Counter([*ids, 4, 5, 6])
        assert came[0] == {"id": 1, "result": "in time"}
        for error in errors(came):
            assert (error["code"], error["data"]["component"]) == (-32603, name)
            assert name in error["message"]


class Fragile(PassAll):
    """Ends with an error when it is told to."""

    def __init__(self):
        self.broken = trio.Event()

    @asynccontextmanager
    async def lifespan(self):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.fail_when_broken)
            yield
            nursery.cancel_scope.cancel()

    async def fail_when_broken(self):
        await self.broken.wait()
        raise RuntimeError("worn out")

    @on("_break")
    async def end(self, params):
        self.broken.set()


@pytest.mark.parametrize("bypassed", [True, False])
async def test_messages_may_arrive_at_any_moment_while_a_plugin_ends(bypassed, autojump_clock):
    """Each request is answered once: by the agent, or with the failure of the plugin."""
    for steps in range(12):
        fragile = PluginComponent("fragile", Fragile(), "proxy", bypassed_on_failure=bypassed)
        agent = MemoryComponent("agent", "agent", make_peer=EchoAgent)
        async with running_chain([fragile, agent]) as harness:
            await harness.send(INITIALIZE)
            await harness.client.receive()
            harness.client.send({"method": "_break"})
            for id in range(steps):
                await trio.lowlevel.checkpoint()
                harness.client.send({"id": id, "method": "_t/request", "params": {}})
                harness.client.send({"method": "_t/note", "params": {}})
            if not bypassed:
                await harness.wait_ended()
                counts = answered(await harness.client.receive_all())
                assert counts == Counter(range(len(counts)))  # later ones were not read any more
                continue
            await wait_all_tasks_blocked()
            assert answered(await harness.client.receive_all()) == Counter(range(steps))
            await harness.send({"id": "after", "method": "_t/request", "params": {"n": 1}})
            assert await harness.client.receive_all() == [{"id": "after", "result": {"n": 1}}]
