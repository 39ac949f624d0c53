"""Real commands that run beside a proxy's handlers."""

from __future__ import annotations

import os
import signal

import psutil
import pytest
import trio

from conductor.proxy.commands import open_command

PATIENCE = 30


async def output(command):
    found = b""
    with trio.fail_after(PATIENCE):
        while data := await command.read():
            found += data
    return found


async def test_output_and_errors_are_one_stream_and_stdin_is_empty(tmp_path):
    script = "cat; pwd; echo oops >&2; echo $NAME; exit 3"
    env = {"PATH": os.environ["PATH"], "NAME": "ann"}
    async with open_command(["/bin/sh", "-c", script], cwd=str(tmp_path), env=env) as command:
        assert await output(command) == f"{tmp_path}\noops\nann\n".encode()
        assert command.status is None
        assert await command.wait() == await command.wait() == command.status == 3


async def test_output_can_be_read_while_it_runs():
    async with open_command(["/bin/sh", "-c", "echo ready; exec sleep 3600"]) as command:
        assert await command.read() == b"ready\n"
        command.send_signal(signal.SIGTERM)
        assert await command.wait() == -signal.SIGTERM
        assert await output(command) == b""


async def test_it_ends_with_the_block_and_so_do_its_children(tmp_path):
    os.mkfifo(tmp_path / "alive")
    reader = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    try:
        script = 'exec 3>"$0"; sleep 3600 & echo; wait'
        async with open_command(["sh", "-c", script, str(tmp_path / "alive")]) as command:
            await command.read()
            assert command.status is None
        assert command.status == -signal.SIGKILL
        with trio.fail_after(PATIENCE):
            await trio.lowlevel.wait_readable(reader)
        assert os.read(reader, 1) == b""  # no process holds the other end
    finally:
        os.close(reader)


async def test_output_that_a_detached_process_holds_open_ends_with_the_command(tmp_path):
    """The process has neither the group nor the mark of the command."""
    os.mkfifo(tmp_path / "detached")
    detached = 'echo $$; echo > "$0"; exec sleep 3600'
    script = f"""env -i setsid /bin/sh -c '{detached}' "$0" & read line < "$0"; exit 0"""
    async with open_command(["/bin/sh", "-c", script, str(tmp_path / "detached")]) as command:
        left = psutil.Process(int(await command.read()))
        assert await command.wait() == 0
        assert left.is_running()
        assert await output(command) == b""
    left.kill()


@pytest.mark.parametrize(
    ("argv", "cwd", "reason"),
    [
        (["no-such-program"], None, "no-such-program"),
        (["true"], "/no/such/directory", "its working directory does not exist"),
        (["true", "a\0b"], None, "null byte"),
    ],
)
async def test_a_command_that_does_not_start_is_an_error_with_the_reason(argv, cwd, reason):
    with pytest.raises(OSError, match=reason):
        async with open_command(argv, cwd=cwd):
            pass


async def test_it_ends_when_the_caller_is_cancelled():
    with trio.move_on_after(PATIENCE) as scope:
        async with open_command(["sleep", "3600"]) as command:
            scope.cancel()
            await command.wait()

    assert command.status == -signal.SIGKILL
