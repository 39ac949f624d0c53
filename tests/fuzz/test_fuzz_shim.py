"""Fuzzer for the shim: bytes arrive unchanged for any chunking."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

SHIM = Path(__file__).parents[2] / "bridges" / "shim.py"
TOKEN = "a-token"
pieces = st.lists(st.binary(min_size=1, max_size=200_000), max_size=4)


@given(to_bridge=pieces, to_agent=pieces)
@settings(max_examples=15)
def test_every_byte_arrives_in_order(tmp_path_factory, to_bridge, to_agent):
    path = str(tmp_path_factory.getbasetemp() / "shim.sock")
    Path(path).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        listener.settimeout(30)
        shim = subprocess.Popen(
            [sys.executable, "-I", "-S", str(SHIM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={"ACP_MCP_BRIDGE": f"unix:{path}", "ACP_MCP_TOKEN": TOKEN},
        )
        with shim, listener.accept()[0] as bridge:
            bridge.settimeout(30)
            writing = threading.Thread(target=write_all, args=(shim.stdin, to_bridge))
            sending = threading.Thread(target=send_all, args=(bridge, to_agent))
            received: list[bytes] = []
            receiving = threading.Thread(target=receive_all, args=(bridge, received, to_bridge))
            for thread in (writing, sending, receiving):
                thread.start()
            wanted, printed = sum(map(len, to_agent)), b""
            while len(printed) < wanted:
                printed += os.read(shim.stdout.fileno(), 65536)
            for thread in (writing, sending, receiving):
                thread.join(30)
            shim.stdin.close()
            bridge.close()
            assert shim.wait(30) == 0

    assert printed == b"".join(to_agent)
    assert b"".join(received) == f"{TOKEN}\n".encode() + b"".join(to_bridge)


def write_all(stdin, chunks):
    for chunk in chunks:
        view = memoryview(chunk)
        while view:
            view = view[stdin.write(view) :]


def send_all(bridge, chunks):
    for chunk in chunks:
        bridge.sendall(chunk)


def receive_all(bridge, received, chunks):
    left = len(TOKEN) + 1 + sum(map(len, chunks))
    while left:
        received.append(bridge.recv(65536))
        left -= len(received[-1])
