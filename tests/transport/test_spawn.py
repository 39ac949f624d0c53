"""What a started program inherits, and what it does not."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
import trio

from conductor.transport.child_process import start_child
from conductor.transport.process_group import _reap
from conductor.transport.process_tree import MARK
from conductor.transport.spawn import (
    SpawnError,
    end_prestarted,
    prestart,
    spawn_process,
)

ROOT = Path(__file__).parents[2]
PATIENCE = 30
ENV = {"PATH": os.environ["PATH"]}


def shell(script, **options):
    return start_child(["/bin/sh", "-c", script], **{"env": ENV, "cwd": None, **options})


async def said(child):
    """The output of a child until EOF; waits for its exit."""
    text = b""
    with trio.fail_after(PATIENCE):
        while chunk := await child.transport.receive():
            text += chunk
        await child.wait()
    child.close()
    return text.decode()


def program(folder, text, *, mode=0o755):
    """A script called `tool`, in a new folder."""
    folder.mkdir()
    path = folder / "tool"
    path.write_text(text)
    path.chmod(mode)
    return folder


async def masks(child):
    """The signals that a child blocks and ignores."""
    lines = dict(line.split(":\t", 1) for line in (await said(child)).splitlines())
    return {
        name: {n for n in range(1, 65) if int(lines[name], 16) >> (n - 1) & 1}
        for name in ("SigBlk", "SigIgn")
    }


async def test_a_program_is_searched_on_the_path_of_its_environment(tmp_path, monkeypatch):
    ours = program(tmp_path / "ours", "#!/bin/sh\necho ours\n")
    theirs = program(tmp_path / "theirs", "#!/bin/sh\necho theirs\n")
    monkeypatch.setenv("PATH", str(ours))

    assert (
        await said(start_child(["tool"], env={"PATH": f"/nowhere:{theirs}"}, cwd=None))
        == "theirs\n"
    )


async def test_the_path_search_skips_files_that_are_not_executable(tmp_path):
    closed = program(tmp_path / "closed", "", mode=0o644)
    there = program(tmp_path / "open", "#!/bin/sh\necho started\n")

    assert (
        await said(start_child(["tool"], env={"PATH": f"{closed}:{there}"}, cwd=None))
        == "started\n"
    )


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        ("", 0o644, "not executable: tool"),
        ("no format that the system knows\n", 0o755, "tool: Exec format error"),
    ],
)
async def test_a_found_program_that_does_not_start_is_the_reported_reason(
    tmp_path, text, mode, reason
):
    folder = program(tmp_path / "folder", text, mode=mode)

    with pytest.raises(SpawnError) as raised:
        start_child(["tool"], env={"PATH": f"{folder}:/nowhere"}, cwd=None)

    assert str(raised.value) == reason


async def test_a_variable_name_with_an_equals_sign_is_refused():
    with pytest.raises(SpawnError) as raised:
        start_child(["/bin/true"], env={"A=B": "1"}, cwd=None)

    assert str(raised.value) == "/bin/true: illegal environment variable name"


async def test_a_variable_without_a_name_is_not_passed_on():
    child = start_child(["/usr/bin/env", "-u", MARK], env={"": "1", "A": "2"}, cwd=None)

    assert await said(child) == "A=2\n"


async def test_a_failed_start_leaves_no_zombie():
    before = set(psutil.Process().children())

    with pytest.raises(SpawnError):
        start_child(["/no/such/program"], env=ENV, cwd=None)

    assert set(psutil.Process().children()) <= before


async def test_signals_that_python_ignores_are_reset_in_a_child():
    assert {signal.SIGPIPE, signal.SIGXFSZ} <= {
        n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN
    }

    found = await masks(start_child(["cat", "/proc/self/status"], env=ENV, cwd=None))

    assert found["SigBlk"] == set()
    assert found["SigIgn"] & {signal.SIGPIPE, signal.SIGXFSZ} == set()


async def test_signals_ignored_or_blocked_on_purpose_stay_so_in_a_child():
    handler = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        child = start_child(["cat", "/proc/self/status"], env=ENV, cwd=None)
    finally:
        signal.signal(signal.SIGUSR1, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    found = await masks(child)

    assert found["SigBlk"] == {signal.SIGUSR2}
    assert signal.SIGUSR1 in found["SigIgn"]


async def test_the_conductors_signal_handling_is_unchanged():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])

    await said(shell("exit 0"))
    with pytest.raises(SpawnError):
        start_child(["/no/such/program"], env=ENV, cwd=None)

    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN


@pytest.mark.parametrize("closed", [[0], [1], [2], [0, 1], [0, 1, 2]], ids=str)
def test_a_child_starts_while_the_conductors_stdio_is_closed(closed, tmp_path):
    """A pipe could get 0, 1 or 2, which the child needs."""
    found = tmp_path / "found"
    script = f"""
import os
from conductor.transport.spawn import end_prestarted, spawn_process, prestart
for number in {closed}:
    os.close(number)
script = "cat; echo oops >&2; ls /proc/self/fd"
child = spawn_process(["/bin/sh", "-c", script], env={ENV}, cwd=None)
assert not {{child.stdin, child.stdout, child.stderr}} & {{0, 1, 2}}
os.write(child.stdin, b"hello ")
os.close(child.stdin)
os.waitpid(child.pid, 0)
text = os.read(child.stdout, 100) + os.read(child.stderr, 100)
open({str(found)!r}, "wb").write(text)
"""
    subprocess.run(
        [sys.executable, "-c", script], check=True, timeout=PATIENCE, env={**os.environ, **ENV}
    )

    assert found.read_text() == "hello 0\n1\n2\n3\noops\n"  # 3 is the directory that `ls` reads


async def test_open_descriptors_are_not_inherited():
    low = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(low, True)
    high = os.dup2(low, 900)

    child = shell("ls /proc/self/fd")
    os.close(low)
    os.close(high)

    assert (await said(child)).split() == ["0", "1", "2", "3"]


async def test_each_of_many_children_has_its_own_pipes():
    children = [shell(f"read line; echo {number} $line") for number in range(50)]
    for child in children:
        child.transport.write_now([b"go\n"])

    assert [await said(child) for child in children] == [f"{n} go\n" for n in range(50)]


async def test_a_child_starts_beside_busy_threads():
    """Locks that they hold stay locked in a forked child."""
    done = threading.Event()

    def busy():
        while not done.is_set():
            __import__("json").dumps(list(range(100)))
            sys.stderr.write("")

    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        with trio.fail_after(PATIENCE):
            for _ in range(20):
                assert await said(shell("echo here")) == "here\n"
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_a_child_reaped_by_other_code_has_ended():
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)

    assert _reap(pid) == 0


def test_the_conductors_ends_of_the_pipes_are_non_blocking():
    child = spawn_process(["/bin/true"], env=ENV, cwd=None)
    ends = (child.stdin, child.stdout, child.stderr)

    assert [os.get_blocking(fd) for fd in ends] == [False, False, False]
    os.waitpid(child.pid, 0)
    for fd in ends:
        os.close(fd)


def test_unclaimed_early_programs_are_killed_with_their_descendants():
    us = psutil.Process()
    files, children = set(os.listdir("/proc/self/fd")), set(us.children())
    prestart(["/bin/sh", "-c", "sleep 3600 & wait"], env=ENV, cwd=None)
    started = set(us.children()) - children
    assert len(started) == 1

    end_prestarted()

    assert psutil.wait_procs(started, PATIENCE)[1] == []
    assert set(os.listdir("/proc/self/fd")) == files


def test_a_program_without_a_name_is_not_found():
    with pytest.raises(SpawnError, match="not found"):
        start_child([""], env=ENV, cwd=None)
