"""The user at the other end of a local TCP connection, as the kernel tells it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from conductor.network import peer_user as module
from conductor.network.peer_user import NO_USER, peer_user

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux")
OTHER = 65534
CLIENT = f"""
import os, socket, sys
os.setuid({OTHER})
connection = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
connection.connect((sys.argv[1], int(sys.argv[2])))
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["127.0.0.1", "::1", "mapped"])
def listener(request):
    family = socket.AF_INET if request.param == "127.0.0.1" else socket.AF_INET6
    mapped = request.param == "mapped"
    host = "::" if mapped else request.param
    with socket.create_server((host, 0), family=family, dualstack_ipv6=mapped) as listener:
        listener.settimeout(10)
        yield listener, ("127.0.0.1" if mapped else host, listener.getsockname()[1])


@pytest.fixture(params=["netlink", "table"])
def source(request, monkeypatch):
    """Where the kernel tells it: `table` without the module that answers by netlink."""
    if request.param == "table":
        monkeypatch.setattr(module, "_ask", lambda source, target: NO_USER)


@pytest.mark.usefixtures("source")
def test_this_user_is_known_also_after_half_a_close(listener):
    listener, address = listener
    with socket.create_connection(address) as client, listener.accept()[0] as server:
        assert peer_user(server) == os.geteuid()
        client.shutdown(socket.SHUT_WR)
        assert peer_user(server) == os.geteuid()


@pytest.mark.usefixtures("source")
def test_a_closed_socket_has_no_user(listener):
    """Not 0, as the kernel says: a process that closes at once would pass for root."""
    listener, address = listener
    client = socket.create_connection(address)
    client.sendall(b"x")
    with listener.accept()[0] as server:
        client.close()
        assert peer_user(server) == NO_USER


@pytest.mark.usefixtures("source")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_known(listener):
    listener, address = listener
    arguments = [sys.executable, "-c", CLIENT, *map(str, address)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline()
        with listener.accept()[0] as server:
            assert peer_user(server) == OTHER
        client.communicate()
