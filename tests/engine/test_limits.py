"""What docs/reliability.md promises of `limits:` and of memory (virtual clock)."""

from __future__ import annotations

import json

import pytest
import trio
from support.played_chain import played_chain

MB = 1_000_000


@pytest.mark.parametrize("who", ["client", "agent"])
async def test_a_peer_with_too_many_open_requests_gets_an_error_for_the_next(
    tmp_path, who, autojump_clock
):
    """Room is made by answers."""
    limits = {"max_open_requests": 3}
    async with played_chain(tmp_path, None, {"name": "p"}, limits=limits) as chain:
        await chain.open("s1")
        sender, receiver = chain.client, chain.agent
        if who == "agent":
            sender, receiver = receiver, sender
        sender.send(*[{"id": n, "method": "_wait"} for n in range(4)])
        (refused,) = await sender.receive_all()
        assert (refused["id"], refused["error"]["code"]) == (3, -32600)
        assert refused["error"]["message"].startswith("more than 3 open requests")
        waiting = await receiver.receive_all()
        assert len(waiting) == 3

        receiver.answer(waiting[0])
        await trio.testing.wait_all_tasks_blocked()
        sender.send({"id": 4, "method": "_wait"})

        assert [each["id"] for each in await sender.receive_all()] == [0]
        assert len(await receiver.receive_all()) == 1


async def test_a_session_more_than_max_sessions_is_refused(tmp_path, autojump_clock):
    async with played_chain(tmp_path, limits={"max_sessions": 2}) as chain:
        await chain.open("s1", "s2")
        chain.client.send({"id": 3, "method": "session/new", "params": {"cwd": "/"}})

        error = (await chain.client.receive())["error"]

        assert error["data"] == "more than 2 sessions (max_sessions); close some"
        assert await chain.agent.receive_all() == []


async def test_a_batch_of_more_than_max_batch_members_is_refused(tmp_path, autojump_clock):
    async with played_chain(tmp_path, limits={"max_batch": 3}) as chain:
        await chain.open("s1")
        members = [{"jsonrpc": "2.0", "id": n, "method": "_x"} for n in range(4)]
        chain.client.send_line(json.dumps(members).encode())

        (answer,) = await chain.client.receive_all()

        assert (answer["id"], answer["error"]["code"]) == (None, -32600)
        assert "over the limit of 3" in answer["error"]["message"]
        assert await chain.agent.receive_all() == []


async def test_a_larger_initialize_than_max_initialize_bytes_is_refused(tmp_path, autojump_clock):
    async with played_chain(tmp_path, limits={"max_initialize_bytes": "1kB"}) as chain:
        params = {"protocolVersion": 1, "_meta": {"x": "y" * 1000}}
        chain.client.send({"id": 0, "method": "initialize", "params": params})

        assert "max_initialize_bytes" in json.dumps((await chain.client.receive())["error"])
        await chain.open("s1")


async def test_malformed_messages_are_reported_at_most_20_times_a_second(
    tmp_path, autojump_clock, monkeypatch
):
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    async with played_chain(tmp_path) as chain:
        await chain.open("s1")
        before = len(chain.logged)
        for _ in range(100):
            chain.agent.send_line(b"Loading...")
        await trio.testing.wait_all_tasks_blocked()
        reports = chain.logged[before:]
        assert len(reports) == 20
        now += 1
        chain.agent.send_line(b"Loading...")
        await trio.testing.wait_all_tasks_blocked()

        last = chain.logged[-1][1]
        assert len(chain.logged) - before == 21
        assert 80 in last.values()


def held(*peers):
    """Bytes that peers could not write yet."""
    return sum(peer.unsent() for peer in peers)


@pytest.mark.parametrize(
    ("to", "share"), [("client", 1.0), ("a", 1.0), ("agent", 6.25)], ids=["client", "a", "agent"]
)
async def test_a_proxy_whose_receiver_does_not_read_is_not_read_beyond_its_share(
    tmp_path, to, share, autojump_clock
):
    """Toward the client `max_buffered_bytes`, divided by the number of components and the client;
    toward the agent, 5/4 of it in the whole chain."""
    proxies = [{"name": "a"}, {"name": "b"}, {"name": "c"}]
    async with played_chain(
        tmp_path, None, *proxies, limits={"max_buffered_bytes": "5MB"}
    ) as chain:
        await chain.open("s1")
        flooding = chain["a" if to == "client" else "b" if to == "a" else "c"].peer
        receiver = chain.client if to == "client" else chain[to].peer
        receiver.stop_reading()
        note = {"method": "_note", "params": {"x": "y" * 10_000}}
        if to == "agent":
            note = {"method": "proxy/successor", "params": note}
        flooding.send(*[note] * 1000)
        await trio.testing.wait_all_tasks_blocked()

        taken = 1000 * 10_000 - held(flooding)
        assert (share - 0.1) * MB < taken < (share + 0.6) * MB
        receiver.start_reading()
        last = chain.agent if to == "agent" else chain.client
        assert len(await last.receive_all()) == 1000
