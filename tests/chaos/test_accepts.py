"""Fault injection: no free descriptor for the next connection or for the files that it opens.

Every listener, in a real process with a lowered RLIMIT_NOFILE: the open descriptors and 0, 1, 2 …
more, so that each step of accepting fails once. A refused client connects when descriptors are free
again; other clients are not affected.
"""

import json
import os
import re
import resource
import socket
import time
from contextlib import contextmanager
from itertools import count, islice

import pytest
from processes import test_bypass_of_a_provider as provider
from support.peers.process import PATIENCE, agent, encoded

from conductor.control.directory import socket_path

SPARE = [0, 1, 2, *(pytest.param(number, marks=pytest.mark.long) for number in range(3, 24))]
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
INITIALIZE = {"id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
given = provider.given


@contextmanager
def cramped(pid, spare):
    """Limit a process to `spare` more descriptors."""
    taken = set(map(int, os.listdir(f"/proc/{pid}/fd")))
    limit = next(islice((number for number in count() if number not in taken), spare, None))
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("spare", SPARE)
def test_a_shim(given, spare):
    editor, entry = given
    wait_for_control_socket(editor.pid)
    with cramped(editor.pid, spare):
        server = provider.Server(entry)
        server.send(0, "initialize", **HELLO)
        if not spare:
            editor.wait_log("accept failed")
        assert editor.answer(editor.prompt("x"))["result"] == {"stopReason": "end_turn"}

    assert "result" in server.receive()
    server.end()
    assert editor.leave() == 0


@pytest.fixture
def serving(start, tmp_path):
    """`serve` on a Unix socket and a port; the process and the port."""
    component = {"run": agent(), "name": "agent", "stop_timeout": "300ms"}
    (tmp_path / "chain.yaml").write_text(json.dumps({"version": 1, "agent": component}))
    listen = ("--listen", f"unix:{tmp_path}/s", "--listen", "127.0.0.1:0")
    server = start("--log", "warning", "serve", str(tmp_path / "chain.yaml"), *listen)
    port = int(re.search(r":(\d+)/acp", server.wait_log("http://"))[1])
    wait_for_control_socket(server.pid)
    yield server, port
    server.process.terminate()
    server.wait()


@pytest.mark.parametrize("spare", SPARE)
def test_a_client_of_a_server(serving, tmp_path, spare):
    """A connected client gets its chain, or an error that names the missing descriptor."""
    server, _ = serving
    first = Line(tmp_path / "s")
    assert "result" in first.ask(INITIALIZE)
    with cramped(server.pid, spare):
        second = Line(tmp_path / "s")
        second.send(INITIALIZE)
        if not spare:
            server.wait_log("accept failed")
        new = first.ask(
            {"id": 1, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}}
        )
        assert new["result"] == {"sessionId": "s1"}
        if spare:
            answer = second.receive()
            assert "result" in answer or answer["error"]["data"]["component"] == "agent"
    if not spare:
        assert "result" in second.receive()
    third = Line(tmp_path / "s")
    assert "result" in third.ask(INITIALIZE)
    for line in (first, second, third):
        line.end()


@pytest.mark.parametrize("spare", SPARE)
def test_a_web_client_of_a_server(serving, spare):
    server, port = serving
    with cramped(server.pid, spare):
        line = socket.create_connection(("127.0.0.1", port), PATIENCE)
        line.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
        if not spare:
            server.wait_log("accept failed")
    with line:
        assert line.recv(100).startswith(b"HTTP/1.1 200")


def wait_for_control_socket(pid):
    """It is opened a moment after the start, with a descriptor that the tests count."""
    end = time.monotonic() + PATIENCE
    while not socket_path(pid).exists():
        assert time.monotonic() < end
        time.sleep(0.01)


class Line:
    """A client on a Unix socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(str(path))
        self.file = self.socket.makefile("rb")

    def send(self, message):
        self.socket.sendall(encoded(message))

    def receive(self):
        return json.loads(self.file.readline())

    def ask(self, message):
        self.send(message)
        return self.receive()

    def end(self):
        self.file.close()
        self.socket.close()
