"""Real pipes, sockets, terminals and files as a transport."""

import os
import socket

import pytest
import trio

from conductor.errors import ConnectionClosed
from conductor.transport.base import CHUNK_SIZE
from conductor.transport.fd_transport import FdTransport

PATIENCE = 30


def transport(read_fd, write_fd):
    for fd in (read_fd, write_fd):
        os.set_blocking(fd, False)
    return FdTransport(read_fd, write_fd)


async def received(transport):
    chunks = []
    with trio.fail_after(PATIENCE):
        while chunk := await transport.receive():
            chunks.append(chunk)
    return b"".join(chunks)


async def test_many_pieces_are_written_in_order_however_few_fit_at_a_time(pipes):
    end, _ours, other = pipes()
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


async def test_closing_one_side_leaves_the_other_open(pipes):
    end, ours, other = pipes()
    end.close_writing()
    end.close_writing()
    assert os.read(other, 1) == b""
    os.write(ours, b"still")

    assert await end.receive() == b"still"


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
