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
    heavy = {
        *("_hashlib", "_ssl", "attr.validators", "idna", "inspect", "logging", "platform"),
        *("shutil", "subprocess", "tokenize", "traceback", "typing_extensions", "urllib.parse"),
    }

    assert run(f"print({heavy} & sys.modules.keys(), 'trio' in sys.modules)") == "set() True"


@pytest.mark.parametrize(
    "name",
    [
        *("attr.validators", "attrs.validators", "ctypes.util", "hmac", "idna", "inspect"),
        *("logging", "msgspec.inspect", "platform", "ssl", "subprocess", "textwrap", "tokenize"),
        *("traceback", "typing_extensions", "urllib.parse"),
    ],
)
def test_whoever_imports_a_module_afterwards_gets_the_real_one(name: str) -> None:
    program = f"import importlib\nm = importlib.import_module({name!r})\nprint(m.__spec__.origin)"

    assert run(program).endswith(".py")


def test_a_package_has_its_module_as_an_attribute_afterwards() -> None:
    assert run("import ctypes.util\nprint(callable(ctypes.util.find_library))") == "True"


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("msgspec.json.schema(int)", "{'type': 'integer'}"),
        ("msgspec.inspect.type_info(int).gt", "None"),
        ("attrs.validators.in_([1])(None, None, 1)", "None"),
        ("pathlib.Path('/a b').as_uri()", "file:///a%20b"),
        ("outcome.Error(ValueError(1)).error", "1"),
        ("trio._core._asyncgens.ASYNCGEN_LOGGER.name", "trio.async_generator_errors"),
    ],
)
def test_what_was_put_off_is_there_when_it_is_wanted(expression: str, value: str) -> None:
    program = f"import attrs, msgspec, outcome, pathlib, trio\nprint({expression})"

    assert run(program) == value


def test_what_was_put_off_says_what_is_wrong() -> None:
    program = """
import outcome
try:
    outcome.Error("no exception")
except TypeError as exc:
    print(exc.args[0][:23])
"""
    assert run(program) == "'error' must be <class"


def test_what_another_version_wants_at_once_is_imported_at_once() -> None:
    program = """
from conductor.cli.lean import lean_imports
for name in ("inspect", "attr.validators", "attrs.validators"):
    sys.modules.pop(name, None)
with lean_imports():
    from inspect import signature
print(sys.modules["inspect"].signature is signature)
"""
    assert run(program) == "True"


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


def test_pyyaml_composes_without_its_package_and_with_patterns_that_wait() -> None:
    program = """
import sys
import re as before
from conductor.cli.lean import import_composer
import_composer()
import re
print(re is before, "yaml" in sys.modules)
from conductor.chainfile.nodes import NodeLoader
from conductor.chainfile.pyyaml import ReaderError
print(NodeLoader("[a, \\u00e9]").get_single_node().value[1].value)
try:
    NodeLoader("\\x07")
except ReaderError as exc:
    print(exc.reason)
import yaml.cyaml
print(yaml.safe_load("[1, a, 2001-01-01]"), re.sub(yaml.reader.Reader.NON_PRINTABLE, "", "a"))
"""
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "True False",
        "é",
        "special characters are not allowed",
        "[1, 'a', datetime.date(2001, 1, 1)] a",
    ]
