"""Fault injection: the n-th read, write, spawn or wait of the conductor fails, for every n.

A real agent and a real proxy, the chain in this process, so that its system calls can be made to
fail. For every n, each request is answered once, the chain ends, and nothing is left behind.
"""

import errno
import gc
import json
import os
import select
import sys
from collections import Counter

import pytest
import trio
from support.peers.process import agent, proxy

from conductor.chain.build import build_components
from conductor.chain.chain import Chain
from conductor.chain.components import ChainSpec
from conductor.chainfile.model import ComponentSpec
from conductor.jsonrpc.messages import request_pieces
from conductor.transport.fd_transport import FdTransport

SHORT = range(1, 9)
LONG = range(9, 60)
CALLS = {
    "read": (os, "read", errno.EIO),
    "read without memory": (os, "read", errno.ENOMEM),
    "write": (os, "write", errno.EPIPE),
    "write to a full disk": (os, "write", errno.ENOSPC),
    "writev": (os, "writev", errno.EPIPE),
    "dup": (os, "dup", errno.EMFILE),
    "pipe": (os, "pipe", errno.EMFILE),
    "spawn": (os, "fork", errno.EAGAIN),
    "pidfd": (os, "pidfd_open", errno.EMFILE),
    "epoll": (select, "epoll", errno.EMFILE),
}


class Failing:
    """Calls a function, except the n-th time. Calls of the standard library's `subprocess` do not
    count: what it leaves when its own pipe cannot be read is not the conductor's."""

    def __init__(self, function, number, code):
        self.function, self.left, self.code = function, number, code

    def __call__(self, *args, **kwargs):
        self.left -= sys._getframe(1).f_globals["__name__"] != "subprocess"
        if self.left == 0:
            self.left = -1
            raise OSError(self.code, os.strerror(self.code))
        return self.function(*args, **kwargs)


class Client:
    """Plain pipes to the chain, whose own ends are never made to fail."""

    def __init__(self):
        self.chain_reads, self.to_chain = os.pipe()
        self.from_chain, self.chain_writes = os.pipe()
        for fd in (self.chain_reads, self.to_chain, self.from_chain, self.chain_writes):
            os.set_blocking(fd, False)
        self.lines: list[bytes] = []
        self.ended = trio.Event()
        self.news = trio.lowlevel.ParkingLot()

    async def read(self, read):
        rest = b""
        while True:
            await trio.lowlevel.wait_readable(self.from_chain)
            if not (data := read(self.from_chain, 65536)):
                break
            *lines, rest = (rest + data).split(b"\n")
            self.lines += lines
            self.news.unpark_all()
        self.ended.set()
        self.news.unpark_all()

    def answers(self):
        messages = map(json.loads, self.lines)
        return Counter(m["id"] for m in messages if "id" in m and "method" not in m)

    async def wait_answer(self, id):
        while id not in self.answers() and not self.ended.is_set():
            await self.news.park()

    def leave(self):
        if self.to_chain >= 0:
            os.close(self.to_chain)
            self.to_chain = -1

    def close(self):
        self.leave()
        os.close(self.from_chain)


REQUESTS = [
    ("initialize", b'{"protocolVersion":1,"clientCapabilities":{}}'),
    ("session/new", b'{"cwd":"/","mcpServers":[]}'),
    ("session/prompt", b'{"sessionId":"s1","prompt":[{"type":"text","text":"stream 20 5000"}]}'),
    ("session/prompt", b'{"sessionId":"s1","prompt":[{"type":"text","text":"die 3"}]}'),
    ("session/prompt", b'{"sessionId":"s1","prompt":[{"type":"text","text":"echo x"}]}'),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "number",
    [*SHORT, *(pytest.param(number, marks=pytest.mark.long) for number in LONG)],
)
async def test_the_nth_call_fails(monkeypatch, call, number):
    specs = [
        ComponentSpec(name="p", run=tuple(proxy("p")), stop_timeout=0.5, start_timeout=5.0),
        ComponentSpec(name="agent", run=tuple(agent("--back", "resume")), stop_timeout=0.5),
    ]
    client, write = Client(), os.write
    chain = Chain(
        FdTransport(client.chain_reads, client.chain_writes),
        ChainSpec(lambda: build_components(specs, mode="agent"), stop_timeout=0.5),
    )
    module, name, code = CALLS[call]
    sent = []

    async def converse():
        for id, (method, params) in enumerate(REQUESTS):
            sent.append(id)
            try:
                write(client.to_chain, b"".join(request_pieces(id, method, params)))
            except (
                BrokenPipeError
            ):  # the chain has lost its client, by a failure of its own reading
                sent.pop()
                break
            await client.wait_answer(id)
            if method == "session/new" and number % 2 == 0:
                monkeypatch.setattr(module, name, Failing(getattr(module, name), number, code))
        client.leave()

    read = os.read
    if number % 2:  # half of the sweep fails while the chain starts, half later
        monkeypatch.setattr(module, name, Failing(getattr(module, name), number, code))
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.read, read)
            nursery.start_soon(converse)
            await chain.run()
            chain.client_end.transport.close()
    monkeypatch.undo()
    client.close()
    lost_client = chain.client_end.connection.closed and call.startswith(("read", "write"))
    del chain
    gc.collect()  # so that the ResourceWarning of an unreaped process is raised here

    answers = client.answers()
    assert max(answers.values(), default=0) <= 1
    assert set(answers) <= set(sent)
    if not lost_client:
        assert set(answers) == set(sent)
