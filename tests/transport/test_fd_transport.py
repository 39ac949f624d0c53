"""Real pipes, sockets, terminals and files as a transport."""

import errno
import os
import pty
import socket
import tty

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from conductor.errors import ConnectionClosed
from conductor.transport.base import CHUNK_SIZE
from conductor.transport.fd_transport import FdTransport

PATIENCE = 30


def pipes():
    """A transport, and the test's ends of its two pipes."""
    (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
    return transport(their_in, their_out), our_out, our_in


def transport(read_fd, write_fd):
    for fd in (read_fd, write_fd):
        os.set_blocking(fd, False)
    return FdTransport(read_fd, write_fd)


def close(*descriptors):
    for descriptor in descriptors:
        os.close(descriptor)


async def received(transport):
    chunks = []
    with trio.fail_after(PATIENCE):
        while chunk := await transport.receive():
            chunks.append(chunk)
    return b"".join(chunks)


async def test_bytes_written_to_a_pipe_are_received_until_eof():
    end, ours, other = pipes()
    os.write(ours, b"one")
    os.write(ours, b"two")
    os.close(ours)

    assert await received(end) == b"onetwo"

    end.close()
    os.close(other)


async def test_receive_waits_for_bytes():
    end, ours, other = pipes()
    chunks = []

    async def receive():
        chunks.append(await end.receive())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        os.write(ours, b"late")

    assert chunks == [b"late"]
    end.close()
    close(ours, other)


async def test_a_full_pipe_takes_a_part_and_is_waited_for():
    end, ours, other = pipes()
    text = bytes(range(256)) * 4096
    pause_writing, read = memoryview(text), b""

    async def drain():
        nonlocal read
        while len(read) < len(text):
            await trio.lowlevel.wait_readable(other)
            read += os.read(other, CHUNK_SIZE)

    taken = end.write_now([pause_writing])
    assert 0 < taken < len(text)
    pause_writing = pause_writing[taken:]
    assert end.write_now([pause_writing]) == 0
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drain)
            while pause_writing:
                await end.wait_writable()
                pause_writing = pause_writing[end.write_now([pause_writing]) :]

    assert read == text
    end.close()
    close(ours, other)


async def test_many_pieces_are_written_in_order_however_few_fit_at_a_time():
    end, ours, other = pipes()
    pieces = [b"%d," % number for number in range(1000)]
    whole, written = b"".join(pieces), 0
    while written < len(whole):
        views, skip = [], written
        for piece in pieces:
            if skip < len(piece):
                views.append(memoryview(piece)[skip:])
            skip = max(0, skip - len(piece))
        written += end.write_now(views)

    end.close()
    assert os.read(other, CHUNK_SIZE) == whole
    close(ours, other)


async def test_writing_without_a_reader_raises_connection_closed():
    end, ours, other = pipes()
    os.close(other)

    with pytest.raises(ConnectionClosed, match=os.strerror(errno.EPIPE)):
        end.write_now([b"x"])

    end.close()
    os.close(ours)


async def test_closing_one_side_leaves_the_other_open():
    end, ours, other = pipes()
    end.close_writing()
    end.close_writing()
    assert os.read(other, 1) == b""
    os.write(ours, b"still")

    assert await end.receive() == b"still"

    end.close()
    end.close()
    close(ours, other)


@pytest.mark.parametrize("how", ["close", "close_reading"])
async def test_close_ends_a_waiting_receive(how):
    end, ours, other = pipes()
    chunks = []

    async def receive():
        chunks.append(await end.receive())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        getattr(end, how)()

    assert chunks == [b""]
    end.close()
    close(ours, other)


async def test_close_ends_a_waiting_writer():
    end, ours, other = pipes()
    while end.write_now([bytes(CHUNK_SIZE)]):
        pass

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end.wait_writable)
            await wait_all_tasks_blocked()
            end.close_writing()

    end.close()
    close(ours, other)


async def test_plain_files_are_read_to_eof_and_written(tmp_path):
    (tmp_path / "in").write_bytes(b"x" * 3 * CHUNK_SIZE)
    source = os.open(tmp_path / "in", os.O_RDONLY)
    target = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    end = transport(source, target)

    assert await received(end) == b"x" * 3 * CHUNK_SIZE
    assert end.write_now([b"a", b"b"]) == 2
    await end.wait_writable()

    end.close()
    assert (tmp_path / "out").read_bytes() == b"ab"


async def test_a_plain_file_does_not_keep_other_tasks_from_running(tmp_path):
    (tmp_path / "in").write_bytes(b"x" * 3 * CHUNK_SIZE)
    source = os.open(tmp_path / "in", os.O_RDONLY)
    end = transport(source, os.open(os.devnull, os.O_WRONLY))
    order = []

    async def note():
        order.append("other")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(note)
        await end.receive()
        await end.receive()
        order.append("reader")

    assert order == ["other", "reader"]
    end.close()


async def test_dev_null_is_at_eof_and_takes_everything():
    end = transport(os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY))

    assert await received(end) == b""
    assert end.write_now([b"a", b"bc"]) == 3
    await end.wait_writable()

    end.close()


async def test_one_socket_for_both_directions():
    ours, theirs = socket.socketpair()
    number = theirs.detach()
    end = transport(number, os.dup(number))
    with ours:
        assert end.write_now([b"to us"]) == 5
        assert ours.recv(100) == b"to us"
        ours.sendall(b"to them")
        assert await end.receive() == b"to them"
        ours.shutdown(socket.SHUT_WR)
        assert await end.receive() == b""
        assert end.write_now([b"still"]) == 5
        assert ours.recv(100) == b"still"
    end.close()


async def test_a_reset_socket_reads_as_eof():
    ours, theirs = socket.socketpair()
    number = theirs.detach()
    end = transport(number, os.dup(number))
    end.write_now([b"never read"])
    ours.close()  # with bytes unread: ECONNRESET

    assert await received(end) == b""
    with pytest.raises(ConnectionClosed):
        end.write_now([b"x"])
    end.close()


async def test_a_closed_terminal_reads_as_eof():
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    end = transport(theirs, os.dup(theirs))
    os.write(ours, b"typed")
    assert await end.receive() == b"typed"

    os.close(ours)

    assert await received(end) == b""
    with pytest.raises(ConnectionClosed):
        end.write_now([b"x"])
    end.close()
