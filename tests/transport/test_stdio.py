"""`claim_stdio` and descriptors 0 and 1, in a separate process."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = 30
HEADER = """
import os, sys, trio
from conductor.transport.stdio import claim_stdio
"""


def run(script, **options):
    """Run a script with `claim_stdio`; the process, ended."""
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, **options}
    options = {"stderr": subprocess.PIPE, "input": b"hello", **options}
    if options["stdin"] is not subprocess.PIPE:
        del options["input"]
    else:
        del options["stdin"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", HEADER + script]
    return subprocess.run(command, env=env, timeout=PATIENCE, check=True, **options)


def test_the_transport_has_stdin_and_stdout():
    done = run("""
async def main():
    with claim_stdio() as transport:
        chunk = await transport.receive()
        transport.write_now([b"<", chunk, b">"])
        transport.write_now([b"end" if await transport.receive() == b"" else b"more"])
trio.run(main)
""")

    assert (done.stdout, done.stderr) == (b"<hello>end", b"")


def test_a_stray_print_goes_to_stderr():
    done = run("""
async def main():
    with claim_stdio() as transport:
        print("printed", flush=True)
        os.write(1, b"written\\n")
        os.system("echo from a child")
        print("nothing to read:", repr(sys.stdin.read()), flush=True)
        transport.write_now([b"protocol"])
trio.run(main)
""")

    assert done.stdout == b"protocol"
    assert done.stderr == b"printed\nwritten\nfrom a child\nnothing to read: ''\n"


def test_a_print_that_is_not_flushed_is_in_the_log_at_once_and_never_on_stdout():
    done = run("""
print("before", end=" ")
async def main():
    with claim_stdio() as transport:
        print("during")
        os.write(2, b"log\\n")
        print("unended", end="")
        transport.write_now([b"protocol"])
trio.run(main)
""")

    assert (done.stdout, done.stderr) == (b"protocol", b"before during\nlog\nunended")


def test_descriptors_0_and_1_are_restored():
    done = run("""
async def main():
    before = [os.readlink(f"/proc/self/fd/{n}") for n in (0, 1)]
    with claim_stdio():
        during = [os.readlink(f"/proc/self/fd/{n}") for n in (0, 1)]
    after = [os.readlink(f"/proc/self/fd/{n}") for n in (0, 1)]
    print(before == after, before[0] != during[0], before[1] != during[1])
    print(sys.stdin.read(), len(os.listdir("/proc/self/fd")))
count = len(os.listdir("/proc/self/fd"))
trio.run(main)
print(count == len(os.listdir("/proc/self/fd")))
""")

    lines = done.stdout.splitlines()
    assert lines[0] == b"True True True"
    assert lines[1].startswith(b"hello ")
    assert lines[2] == b"True"


@pytest.mark.parametrize(
    ("before", "fails"),
    [
        *((True, False), (False, True)),
        *(pytest.param(each, each, marks=pytest.mark.slow) for each in (True, False)),
    ],
)
def test_blocking_mode_is_restored(fails, before):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        os.set_blocking(theirs.fileno(), before)
        run(
            f"""
async def main():
    with claim_stdio():
        os.write(2, b"claimed")
        if {fails}:
            raise KeyError
try:
    trio.run(main)
except KeyError:
    pass
""",
            stdin=theirs,
            stdout=theirs,
        )
        assert os.get_blocking(theirs.fileno()) is before


def test_stderr_stays_blocking_if_it_shares_a_pipe_with_stdout():
    done = run(
        """
async def main():
    with claim_stdio() as transport:
        print(os.get_blocking(2), os.get_blocking(1), flush=True)
        while transport.write_now([b"."]) and not full():
            pass
        print("whole line", flush=True)
def full():
    return True
trio.run(main)
""",
        stderr=subprocess.STDOUT,
    )

    assert done.stdout == b"True True\n.whole line\n"
