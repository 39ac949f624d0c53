"""Blocks of notifications, which come in one chunk and are passed on together: a block is treated
like its messages one by one."""

from __future__ import annotations

import pytest
import trio
from support.memory_chain import chain_of, play_handshake, running_chain
from support.played_chain import cancel_turn, played_chain, prompt, said, state, told

NOTE = {"method": "_vendor/note", "params": {}}
ALONE_OR_NOT = pytest.mark.parametrize("others", [[], [NOTE]])
"""Notifications of another method in the same chunk: the updates are then found line by line."""


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
        one, two, three, four, five, six = (said(str(n)) for n in range(6))
        sent = [one, two, ping, three, four, cancellation, five]
        invalid = {"method": "proxy/successor", "params": {"method": 7}}
        proxy.send(*map(enveloped, sent), invalid, enveloped(six))

        reissued = {"method": "$/cancel_request", "params": {"requestId": work["id"]}}
        expected = [reissued if each is cancellation else each for each in [*sent, six]]
        assert await agent.receive_all() == expected
        proxy.answer(request)
        assert await client.receive_all() == [{"id": "c1", "result": {}}]


@ALONE_OR_NOT
@pytest.mark.parametrize("forged", [0, 1, 2])
async def test_what_only_proxies_may_say_is_removed_from_each_update_of_an_agent(
    forged, others, autojump_clock
):
    async with running_chain(chain_of(1)) as harness:
        await play_handshake(harness)
        updates = [said(str(n)) for n in range(3)]
        meta = {"_meta": {"acp-conductor/handled": True, "kept": 1}}
        sent = [*updates]
        sent[forged] = {**updates[forged], "params": {**updates[forged]["params"], **meta}}
        harness.agent.send(*sent, *others)

        updates[forged]["params"]["_meta"] = {"kept": 1}
        assert await harness.peer(0).receive_all() == list(map(enveloped, [*updates, *others]))


async def test_each_cancelled_turn_of_a_block_is_ended_after_cancel_timeout(
    tmp_path, autojump_clock
):
    async with played_chain(tmp_path, None, {"name": "p"}) as chain:
        await chain.open("s1", "s2")
        await chain.prompt(1, "s1")
        await chain.prompt(2, "s2")
        chain.client.send(cancel_turn("s1"), cancel_turn("s2"))
        assert await chain.agent.receive_all() == [cancel_turn("s1"), cancel_turn("s2")]
        await trio.sleep(10.1)

        first, second, end, last = await chain.client.receive_all()
        result = {"stopReason": "cancelled"}
        assert (end, last) == ({"id": 1, "result": result}, {"id": 2, "result": result})
        for number, notice in enumerate((first, second), 1):
            session, text = told(notice)
            assert session == f"s{number}"
            assert "agent did not end the cancelled turn within 10 s" in text


@ALONE_OR_NOT
@pytest.mark.parametrize("proxies", [[], [{"name": "p"}]])
async def test_a_turn_that_ends_in_a_block_is_not_ended_again(
    tmp_path, proxies, others, autojump_clock
):
    async with played_chain(tmp_path, None, *proxies, version=2) as chain:
        await chain.open("s1")
        await chain.prompt(1)
        chain.client.send(cancel_turn())
        await chain.expect("session/cancel")
        end = [said("x"), state("idle", stopReason="cancelled")]
        chain.agent.send(*end, *others)
        await trio.sleep(3600)

        assert await chain.client.receive_all() == [*end, *others]


async def test_each_prompt_that_waits_for_a_restart_is_cancelled_by_a_block(
    tmp_path, autojump_clock
):
    async with played_chain(tmp_path, {"cancel_timeout": "2s"}) as chain:
        await chain.open("s1", "s2", "s3", able={"sessionCapabilities": {"resume": {}}})
        await chain["agent"].end()
        prompts = [prompt(number, f"s{number}") for number in (1, 2, 3)]
        chain.client.send(*prompts, cancel_turn("s1"), cancel_turn("s2"))
        await chain.expect("initialize")
        await trio.sleep(2.1)

        ends = [each for each in await chain.client.receive_all() if "id" in each]
        result = {"stopReason": "cancelled"}
        assert ends == [{"id": 1, "result": result}, {"id": 2, "result": result}]


async def test_a_block_for_a_component_that_restarts_waits_for_the_end_of_its_replay(
    tmp_path, autojump_clock
):
    able = {"sessionCapabilities": {"resume": {}}}
    async with played_chain(tmp_path) as chain:
        await chain.open("s1", able=able)
        await chain["agent"].end()
        request = await chain.expect("initialize")
        notes = [{"method": "_note", "params": {"n": n}} for n in range(3)]
        chain.client.send(*notes)
        await chain.agent.receive_nothing()

        chain.agent.answer(request, {"protocolVersion": 1, "agentCapabilities": able})
        await chain.serve("session/resume")
        assert await chain.agent.receive_all() == notes


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_no_part_of_a_replayed_history_reaches_the_client(tmp_path, count, autojump_clock):
    able = {"loadSession": True}
    async with played_chain(tmp_path) as chain:
        await chain.open("s1", able=able)
        await chain["agent"].end()
        await chain.serve("initialize", {"protocolVersion": 1, "agentCapabilities": able})
        request = await chain.expect("session/load")
        chain.agent.send(*[said("old")] * count)
        chain.agent.answer(request)
        chain.agent.send(*[said("new")] * count)

        texts = [told(each)[1] for each in await chain.client.receive_all()]
        assert "old" not in texts
        assert texts.count("new") == count
