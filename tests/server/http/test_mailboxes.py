"""Queues of event streams, on a virtual clock."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from conductor.network.sequence_numbers import SequenceError
from conductor.server.http.mailboxes import Mailbox, Mailboxes


async def test_unsent_lines_are_taken_again_first():
    mailboxes = Mailboxes(max_bytes=10_000, max_streams=2)
    mailbox = mailboxes.connection
    mailbox.put(b"1")
    mailbox.put(b"2")
    has_reader = await mailbox.take()
    mailbox.put(b"3")
    mailbox.put_back(has_reader)

    assert await mailbox.take() == [b"1", b"2", b"3"]


async def test_room_waits_while_all_streams_together_exceed_the_limit(autojump_clock):
    mailboxes = Mailboxes(max_bytes=1000, max_streams=2)
    mailboxes.mailbox_for("a").put(b"x" * 500)
    mailboxes.mailbox_for("b").put(b"x" * 500)
    with trio.move_on_after(1) as waiting:
        await mailboxes.wait_for_space()
    await mailboxes.mailbox_for("b").take()
    await mailboxes.wait_for_space()

    assert waiting.cancelled_caught


async def test_queued_lines_are_taken_after_eof():
    mailboxes = Mailboxes(max_bytes=1, max_streams=2)
    mailboxes.connection.put(b"last")
    mailboxes.end()
    await mailboxes.wait_for_space()

    assert await mailboxes.connection.take() == [b"last"]
    assert await mailboxes.connection.take() == []


async def test_eof_wakes_a_reader():
    mailboxes = Mailboxes(max_bytes=1, max_streams=2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailboxes.mailbox_for("s").take)
        await wait_all_tasks_blocked()
        mailboxes.end()


def read(mailboxes: Mailboxes, session: str) -> Mailbox:
    """A stream of the session is opened."""
    mailbox = mailboxes.for_stream(session)
    assert mailbox is not None
    mailboxes.add_reader(mailbox)
    return mailbox


async def test_an_empty_mailbox_without_a_reader_is_dropped():
    mailboxes = Mailboxes(max_bytes=1000, max_streams=2)
    mailboxes.mailbox_for("s").put(b"1")
    mailbox = read(mailboxes, "s")
    await mailbox.take()
    assert mailboxes.sessions == {"s": mailbox}

    mailboxes.remove_reader(mailbox)
    assert mailboxes.sessions == {}


async def test_numbers_are_kept_until_the_session_is_closed_and_all_is_acknowledged():
    open_sessions = {"s"}
    mailboxes = Mailboxes(max_bytes=1000, max_streams=2, is_open=open_sessions.__contains__)
    mailboxes.mailbox_for("s").put(b"1")
    mailbox = read(mailboxes, "s")
    await mailbox.take_numbered()
    mailboxes.remove_reader(mailbox)
    mailbox.acknowledge(1)
    assert mailboxes.sessions == {"s": mailbox}

    mailbox.put(b"2")
    mailboxes.add_reader(mailbox)
    await mailbox.take_numbered()
    mailboxes.remove_reader(mailbox)
    open_sessions.clear()
    mailboxes.closed("s")
    assert mailboxes.sessions == {"s": mailbox}

    mailbox.acknowledge(2)
    assert mailboxes.sessions == {}


async def test_a_new_mailbox_goes_on_with_the_numbers_that_the_client_has():
    mailboxes = Mailboxes(max_bytes=1000, max_streams=2)
    mailbox = read(mailboxes, "s")
    mailbox.resume_after(7)
    mailbox.put(b"8")

    assert [each.number for each in await mailbox.take_numbered()] == [8]
    with pytest.raises(SequenceError):
        mailbox.resume_after(9)
    with pytest.raises(SequenceError):
        mailboxes.connection.resume_after(1)


def test_messages_of_a_closed_session_go_to_the_connections_stream():
    mailboxes = Mailboxes(max_bytes=1000, max_streams=2)
    mailboxes.closed("s")
    assert mailboxes.mailbox_for("s") is mailboxes.connection

    mailboxes.opened("s")
    assert mailboxes.mailbox_for("s") is not mailboxes.connection


def test_an_agent_that_invents_sessions_gets_no_more_mailboxes_than_streams():
    mailboxes = Mailboxes(max_bytes=1000, max_streams=2, is_open=lambda session: session == "real")
    for session in ("x", "y"):
        assert mailboxes.mailbox_for(session) is not mailboxes.connection
    assert mailboxes.mailbox_for("z") is mailboxes.connection
    assert mailboxes.mailbox_for("real") is not mailboxes.connection

    mailboxes.add_reader(mailboxes.mailbox_for("x"))
    assert mailboxes.mailbox_for("z") is not mailboxes.connection


async def test_lines_of_a_session_without_a_stream_move_to_the_connections_once():
    mailboxes = Mailboxes(max_bytes=1000, max_streams=2)
    mailbox = read(mailboxes, "s")
    for line in (b"1", b"2"):
        mailbox.put(line)
    await mailbox.take_numbered()
    mailbox.acknowledge(1)
    mailbox.put(b"3")
    mailboxes.remove_reader(mailbox)
    mailboxes.move_to_connection("s")

    assert mailboxes.sessions == {}
    assert await mailboxes.connection.take() == [b"2", b"3"]
    assert mailboxes.waiting == 0
