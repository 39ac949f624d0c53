"""trio and msgspec are imported without what they do not need here, and can do everything still.

Each test is a program of its own, because what is imported once stays.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

LEAN = """
import sys
from conductor.cli.lean import import_msgspec_and_trio
import_msgspec_and_trio()
"""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", LEAN + program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_is_not_needed_is_not_imported() -> None:
    heavy = "{'_hashlib', '_ssl', 'idna', 'shutil', 'typing_extensions'}"

    assert run(f"print({heavy} & sys.modules.keys(), 'trio' in sys.modules)") == "set() True"


@pytest.mark.parametrize("name", ["ctypes.util", "hmac", "idna", "ssl", "typing_extensions"])
def test_whoever_imports_a_module_afterwards_gets_the_real_one(name: str) -> None:
    program = f"import importlib\nm = importlib.import_module({name!r})\nprint(m.__spec__.origin)"

    assert run(program).endswith(".py")


def test_a_package_has_its_module_as_an_attribute_afterwards() -> None:
    assert run("import ctypes.util\nprint(callable(ctypes.util.find_library))") == "True"


def test_trio_speaks_tls_afterwards() -> None:
    program = """
import ssl, trio, trio.testing, trustme

authority = trustme.CA()
server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
authority.issue_cert("localhost").configure_cert(server)
authority.configure_trust(client)

async def main():
    ours, theirs = trio.testing.memory_stream_pair()
    there = trio.SSLStream(theirs, server, server_side=True)
    here = trio.SSLStream(ours, client, server_hostname="localhost")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(there.do_handshake)
        await here.send_all(b"hello")
        print((await there.receive_some()).decode())

trio.run(main)
"""
    assert run(program) == "hello"


def test_trio_resolves_names_afterwards() -> None:
    program = "import trio\nprint(len(trio.run(trio.socket.getaddrinfo, 'localhost', 80)) > 0)"

    assert run(program) == "True"


@pytest.mark.skipif(sys.platform != "linux", reason="where a thread's name can be read")
def test_trio_names_its_threads_afterwards() -> None:
    program = """
import threading, trio

def name():
    return open(f"/proc/self/task/{threading.get_native_id()}/comm").read()

async def main():
    print((await trio.to_thread.run_sync(name)).strip())

trio.run(main)
"""
    assert run(program) == "name from __main__.name"[:15]
