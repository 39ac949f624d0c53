"""Blocks of notifications, which come in one chunk and are passed on together: each message keeps
its place, its bytes and its neighbours."""

from __future__ import annotations

import json

from support.memory_chain import chain_of, play_handshake, running_chain


def lines(*messages):
    """Messages as an SDK writes them: compact JSON, each on a line."""
    texts = [json.dumps({"jsonrpc": "2.0", **each}, separators=(",", ":")) for each in messages]
    return "".join(f"{each}\n" for each in texts).encode()


def update(number, session="s1"):
    inner = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": number}}
    return {"method": "session/update", "params": {"sessionId": session, "update": inner}}


def enveloped(message, dialect="proxy"):
    return {"method": f"{dialect}/successor", "params": message}


async def test_an_odd_envelope_keeps_its_place_among_the_notifications_around_it(autojump_clock):
    """Without params, for the conductor, or invalid: none of them is part of a block."""
    async with running_chain(chain_of(1)) as harness:
        await play_handshake(harness)
        client, proxy, agent = harness.client, harness.peer(0), harness.agent
        client.send({"id": "c1", "method": "session/prompt", "params": {"sessionId": "s1"}})
        request = await proxy.receive()
        proxy.send({"id": "p1", "method": "proxy/successor", "params": {"method": "work"}})
        work = await agent.receive()

        ping = {"method": "_vendor/ping"}
        cancellation = {"method": "$/cancel_request", "params": {"requestId": "p1"}}
        sent = [update(0), update(1), ping, update(2), update(3), cancellation, update(4)]
        invalid = {"method": "proxy/successor", "params": {"method": 7}}
        proxy.send_bytes(lines(*map(enveloped, sent), invalid, enveloped(update(5))))

        reissued = {"method": "$/cancel_request", "params": {"requestId": work["id"]}}
        expected = [reissued if each is cancellation else each for each in [*sent, update(5)]]
        assert await agent.receive_all() == expected
        proxy.answer(request)
        assert await client.receive_all() == [{"id": "c1", "result": {}}]
