from __future__ import annotations

import os
import sys

import psutil
import pytest
import trio

from conductor.proxy.commands import CommandResult, run_command


async def test_a_command_gets_its_input_and_returns_output_and_status():
    code = "import sys; d = sys.stdin.read(); print(d * 2); sys.stderr.write('oh'); sys.exit(3)"
    done = await run_command([sys.executable, "-c", code], seconds=60, stdin=b"ab")

    assert done == CommandResult(3, b"abab\n", b"oh")


async def test_a_command_gets_the_environment_that_is_given(monkeypatch):
    monkeypatch.setenv("GIT_INDEX_FILE", "mine")
    command = ["/bin/sh", "-c", 'echo "${GIT_INDEX_FILE-none}"']

    assert (await run_command(command, seconds=60)).stdout == b"mine\n"
    assert (await run_command(command, seconds=60, env={})).stdout == b"none\n"


async def test_a_command_that_takes_too_long_is_ended(virtual_clock):
    done = await run_command(["sleep", "1000"], seconds=2)

    assert done == CommandResult(None, problem="sleep took over 2 s")


async def test_children_of_a_command_are_ended(tmp_path):
    os.mkfifo(tmp_path / "alive")
    reader = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    try:
        script = 'exec 3>"$0"; sleep 1000 >/dev/null 2>&1 &'
        done = await run_command(["sh", "-c", script, str(tmp_path / "alive")], seconds=60)
        with trio.fail_after(60):
            await trio.lowlevel.wait_readable(reader)

        assert done == CommandResult(0)
        assert os.read(reader, 1) == b""  # the other end is closed
    finally:
        os.close(reader)


async def test_output_over_the_limit_is_read_but_not_kept():
    code = "print('x' * 1_000_000)"
    done = await run_command([sys.executable, "-c", code], seconds=60, limit=10)

    assert done == CommandResult(0, b"x" * 10)


async def test_a_command_need_not_read_its_input():
    done = await run_command(["true"], seconds=60, stdin=b"x" * 1_000_000)

    assert done.status == 0


@pytest.mark.parametrize("argv", [["no-such-program", "secret"], ["nul\0byte", "secret"]])
async def test_a_command_that_cannot_be_run_says_why_without_its_arguments(argv):
    done = await run_command(argv, seconds=60)

    assert done.status is None
    assert done.problem.startswith(f"{argv[0]} cannot be run: ")
    assert "secret" not in done.problem


async def test_cancelling_the_caller_ends_the_command():
    with trio.move_on_after(0):
        await run_command(["sleep", "1000"], seconds=60)

    running = [child for child in psutil.Process().children() if child.name() == "sleep"]
    assert not [child for child in running if child.status() != psutil.STATUS_ZOMBIE]
