"""One principal's use of the loop does not make the others wait: accounts, turns and the server."""

from __future__ import annotations

import gc
from itertools import pairwise

import pytest
import trio
import trio.testing
from support.raw_json import compact
from support.server_clients import ask, initialize, new_session, prompt, request, serving, websocket

from conductor.server.access import AccessPolicy, read_tokens
from conductor.server.fair_share import CURRENT_ACCOUNT, SLICE, AccountRef, FairShare

ANN, BOB = "a" * 32, "b" * 32
TOKENS = AccessPolicy(tokens=read_tokens([f"ann:{ANN}", f"bob:{BOB}"]))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def spend(self, shares: FairShare, name: str, seconds: float) -> None:
        """A step of an account."""
        account, began = shares.account(name), self.now
        self.now += seconds
        shares.add(account, began, self.now)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_alone_an_account_is_never_ahead(clock):
    shares = FairShare(clock)
    for _ in range(100):
        clock.spend(shares, "ann", 0.05)

        assert shares.ahead(shares.account("ann")) == pytest.approx(0)


def test_while_another_is_active_an_account_has_half_of_the_time(clock):
    shares = FairShare(clock)
    clock.spend(shares, "bob", 0.001)
    shares.ahead(shares.account("ann"))
    clock.spend(shares, "ann", 0.04)

    assert shares.ahead(shares.account("ann")) == pytest.approx(0.02)
    clock.now += 0.04
    assert shares.ahead(shares.account("ann")) == pytest.approx(0)


def test_an_account_is_not_ahead_without_bounds(clock):
    shares = FairShare(clock)
    clock.spend(shares, "ann", 100)
    clock.spend(shares, "bob", 0.001)

    assert shares.ahead(shares.account("ann")) <= 0.5


def test_idle_accounts_are_dropped(clock):
    shares = FairShare(clock)
    for number in range(5000):
        clock.spend(shares, str(number), 0.01)

    assert len(shares._accounts) <= 1000


async def test_only_an_account_over_its_share_waits(autojump_clock):
    shares = FairShare(trio.current_time)
    ann, bob = shares.account("ann"), shares.account("bob")
    now = trio.current_time()
    shares.add(bob, now, now)
    ann.ahead = 0.010
    began = trio.current_time()

    await shares.wait_for_share(bob)
    assert trio.current_time() == began
    await shares.wait_for_share(ann)
    assert trio.current_time() == pytest.approx(began + 2 * (0.010 - SLICE / 2))


async def test_turns_of_one_account_come_in_order_one_slice_at_a_time(autojump_clock):
    shares = FairShare(trio.current_time)
    ann, bob = shares.account("ann"), shares.account("bob")
    ended: list[tuple[int, float]] = []

    async def step(number: int) -> None:
        await shares.wait_for_share(ann)
        now = trio.current_time()
        shares.add(bob, now, now)
        shares.add(ann, now, now + SLICE)  # as if it had taken so long
        ended.append((number, now))

    now = trio.current_time()
    shares.add(bob, now, now)
    ann.ahead = 2 * SLICE
    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(step, number)
            await trio.testing.wait_all_tasks_blocked()

    times = [at for _, at in ended]
    assert [number for number, _ in ended] == list(range(10))
    assert all(later - earlier >= SLICE for earlier, later in pairwise(times))
    assert ann.waiting == 0


async def test_steps_of_a_task_and_of_its_children_are_added_to_its_account():
    shares = FairShare()

    async def child() -> None:
        end = shares.clock() + 0.01
        while shares.clock() < end:
            pass

    async def parent() -> None:
        CURRENT_ACCOUNT.set(AccountRef(shares.account("ann")))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)

    with shares.measured():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(parent)

    assert shares.account("ann").ahead >= 0.01
    assert shares.account("bob").ahead == 0


async def test_a_flooding_client_waits_and_others_are_answered(tmp_path):
    member = request("", "_x/y")
    del member["id"]
    flood = compact([member] * 5000)

    async def flooding(opened: trio.Event) -> None:
        async with websocket(server, ("authorization", f"Bearer {ANN}")) as socket:
            await ask(socket, initialize())
            opened.set()
            while True:
                await socket.send_message(flood)

    async with (
        serving(tmp_path, access=TOKENS) as server,
        websocket(server, ("authorization", f"Bearer {BOB}")) as socket,
    ):
        ann = server.clients.fair_share.account("token ann")
        await ask(socket, initialize())
        session = (await ask(socket, new_session(1)))["result"]["sessionId"]
        async with trio.open_nursery() as nursery:
            opened = trio.Event()
            nursery.start_soon(flooding, opened)
            await opened.wait()
            number = 10
            while not ann.waiting:
                number += 1
                await ask(socket, prompt(number, session, "say hello"))
            nursery.cancel_scope.cancel()

    assert ann.ahead > 0


async def test_plugins_of_a_client_wait_for_its_share(tmp_path):
    async with (
        serving(tmp_path, access=TOKENS) as server,
        websocket(server, ("authorization", f"Bearer {ANN}")) as socket,
    ):
        await ask(socket, initialize())
        (client,) = server.clients.by_id.values()
        account = server.clients.fair_share.account("token ann")

        async with account.turns:
            account.waiting += 1  # as for a task that waits for the share before it
            waiter = client.chain.wait_for_share
            assert waiter is not None
            with trio.move_on_after(0) as waiting:
                await waiter()
            account.waiting -= 1

    assert waiting.cancelled_caught


async def test_use_before_authentication_is_charged_to_the_address(tmp_path):
    async with (
        serving(tmp_path, access=TOKENS) as server,
        websocket(server, ("authorization", f"Bearer {ANN}")) as socket,
    ):
        await ask(socket, initialize())
        used = [
            server.clients.fair_share.account(name).last > 0 for name in ("127.0.0.1", "token ann")
        ]
        never = server.clients.fair_share.account("token bob").last

    assert (used, never) == ([True, True], -1)


async def test_garbage_collections_are_added_to_no_account():
    clock = Clock()
    shares = FairShare(clock)

    async def step() -> None:
        CURRENT_ACCOUNT.set(AccountRef(shares.account("ann")))
        await trio.lowlevel.checkpoint()
        clock.now += 0.003
        gc.collect()

    def slow(phase: str, info: object) -> None:
        clock.now += phase == "start"

    with shares.measured():
        gc.callbacks.append(slow)  # called after the meter's own
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(step)
        finally:
            gc.callbacks.remove(slow)

    assert shares.account("ann").ahead == pytest.approx(0.003)
