"""What waits for streams, on a virtual clock."""

from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from conductor.server.mailboxes import Mailboxes


async def test_what_was_put_is_taken_in_order_all_at_once():
    mailboxes = Mailboxes(bound=10_000, most=2)
    mailboxes.of("s").put(b"1")
    mailboxes.of("s").put(b"2")

    assert await mailboxes.of("s").take() == [b"1", b"2"]


async def test_what_could_not_be_sent_is_taken_again_first():
    mailboxes = Mailboxes(bound=10_000, most=2)
    mailbox = mailboxes.connection
    mailbox.put(b"1")
    mailbox.put(b"2")
    taken = await mailbox.take()
    mailbox.put(b"3")
    mailbox.put_back(taken)

    assert await mailbox.take() == [b"1", b"2", b"3"]


async def test_too_much_for_all_streams_together_is_waited_for(autojump_clock):
    mailboxes = Mailboxes(bound=1000, most=2)
    mailboxes.of("a").put(b"x" * 500)
    mailboxes.of("b").put(b"x" * 500)
    with trio.move_on_after(1) as waiting:
        await mailboxes.room()
    await mailboxes.of("b").take()
    await mailboxes.room()

    assert waiting.cancelled_caught


async def test_after_the_end_what_waits_is_still_taken():
    mailboxes = Mailboxes(bound=1, most=2)
    mailboxes.connection.put(b"last")
    mailboxes.end()
    await mailboxes.room()

    assert await mailboxes.connection.take() == [b"last"]
    assert await mailboxes.connection.take() == []


async def test_a_reader_learns_of_the_end():
    mailboxes = Mailboxes(bound=1, most=2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailboxes.of("s").take)
        await wait_all_tasks_blocked()
        mailboxes.end()


def test_sessions_beyond_the_bound_have_no_mailbox_of_their_own():
    mailboxes = Mailboxes(bound=1, most=1)

    assert mailboxes.of("a") is not mailboxes.connection
    assert mailboxes.of("b") is mailboxes.connection
