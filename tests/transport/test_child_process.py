"""Real child processes: their pipes, their exit, and the end of their descendants."""

import os
import re
import signal
import subprocess
import sys

import psutil
import pytest
import trio
import trio.lowlevel

from conductor.transport.child_process import start_child
from conductor.transport.process_tree import MARK
from conductor.transport.spawn import SpawnError, end_prestarted, prestart

PATIENCE = 30
ENV = {"PATH": os.environ["PATH"]}


def shell(script, **options):
    return start_child(["/bin/sh", "-c", script], **{"env": ENV, "cwd": None, **options})


async def output(child):
    with trio.fail_after(PATIENCE):
        text = b""
        while chunk := await child.transport.receive():
            text += chunk
        return text


async def status_of(pid, status):
    """Wait until a process has this status."""
    with trio.fail_after(PATIENCE):
        while psutil.Process(pid).status() != status:
            await trio.lowlevel.checkpoint()


async def ended(child):
    """The status of a child; closes its pipes."""
    with trio.fail_after(PATIENCE):
        status = await child.wait()
    child.close()
    return status


async def test_a_child_has_three_pipes():
    child = shell("read line; echo got $line; echo oops >&2")
    assert child.status is None
    child.transport.write_now([b"this\n"])

    assert await output(child) == b"got this\n"
    assert await child.read_stderr() == b"oops\n"
    assert await child.read_stderr() == b""
    assert await ended(child) == child.status == "exited with status 0"


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("exit 7", "exited with status 7"),
        ("kill -9 $$", "was ended by SIGKILL"),
        ("kill -34 $$", "was ended by SIGRTMIN"),
        ("kill -40 $$", "was ended by signal 40"),
    ],
)
async def test_a_return_code_is_described_in_words(script, status):
    assert await ended(shell(script)) == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_signal_reaches_the_whole_group(number):
    child = shell("sleep 3600 & echo $!; cat")
    grandchild = psutil.Process(int(await child.transport.receive()))

    child.signal(number)

    assert await ended(child) == f"was ended by {number.name}"
    psutil.wait_procs([grandchild], PATIENCE)
    assert not grandchild.is_running()


async def test_processes_left_in_its_group_are_killed_at_its_exit():
    child = shell("sleep 3600 & echo $!")
    grandchild = psutil.Process(int(await child.transport.receive()))

    assert await ended(child) == "exited with status 0"
    psutil.wait_procs([grandchild], PATIENCE)
    assert not grandchild.is_running()


async def test_waiting_can_be_cancelled_and_repeated():
    child = shell("read line")
    with trio.move_on_after(0):
        await child.wait()
    assert child.status is None

    child.transport.close_writing()

    assert await ended(child) == "exited with status 1"


async def test_it_leads_its_own_session_and_process_group():
    child = shell("read line")

    assert os.getpgid(child.pid) == os.getsid(child.pid) == child.pid
    child.transport.close()
    await ended(child)


async def test_a_stopped_process_is_named_also_below_the_child():
    child = shell("sleep 1000 & echo $!; wait")
    below = int(await child.transport.receive())
    assert child.stopped is None
    os.kill(below, signal.SIGSTOP)
    await status_of(below, psutil.STATUS_STOPPED)

    assert child.stopped == f"its process {below} is stopped"
    os.kill(child.pid, signal.SIGSTOP)
    await status_of(child.pid, psutil.STATUS_STOPPED)
    assert child.stopped == f"its process {child.pid} is stopped by SIGSTOP"

    os.killpg(child.pid, signal.SIGCONT)
    await status_of(child.pid, psutil.STATUS_SLEEPING)
    assert child.stopped is None
    child.signal(signal.SIGKILL)
    await ended(child)
    assert child.stopped is None


async def test_it_inherits_only_its_pipes():
    inheritable = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(inheritable, True)
    other = shell("read line")
    child = shell("ls -l /proc/self/fd")
    os.close(inheritable)

    numbers = [int(n) for n in re.findall(r"(\d+) -> ", (await output(child)).decode())]
    assert numbers == [0, 1, 2, 3]  # 3 is the directory that `ls` reads
    assert await ended(child) == "exited with status 0"
    other.transport.close()
    await ended(other)


async def test_its_environment_is_the_given_one_and_the_mark():
    child = start_child(["/usr/bin/env"], env={"A": "1", "B": "x y"}, cwd=None)

    *given, mark = sorted((await output(child)).splitlines(), key=lambda line: b"_TREE" in line)
    assert sorted(given) == [b"A=1", b"B=x y"]
    assert mark.startswith(b"ACP_CONDUCTOR_TREE=")  # by which its descendants are found
    assert await ended(child) == "exited with status 0"


async def test_signals_ignored_by_python_are_not_ignored_by_the_child():
    """Python ignores SIGPIPE; a component that inherits that does not end at a closed pipe."""
    child = shell("kill -PIPE $$; echo survived")

    assert await output(child) == b""
    assert await ended(child) == "was ended by SIGPIPE"


@pytest.mark.parametrize(
    ("argv", "cwd", "reason"),
    [
        (["no-such-program"], None, "command not found: no-such-program (PATH is /somewhere)"),
        (["/no/such/program"], None, "no such file: /no/such/program"),
        (["/etc"], None, "not executable: /etc"),
        (
            ["/bin/sh"],
            "/no/such/directory",
            "its working directory does not exist: /no/such/directory",
        ),
        (["/bin/sh", "a\0b"], None, "/bin/sh: embedded null byte"),
    ],
)
async def test_a_failed_start_is_explained_and_leaves_nothing(argv, cwd, reason):
    with pytest.raises(SpawnError) as raised:
        start_child(argv, env={"PATH": "/somewhere"}, cwd=cwd)

    assert str(raised.value) == reason


def program(folder, text, *, mode=0o755):
    """A script called `tool`, in a new folder."""
    folder.mkdir()
    path = folder / "tool"
    path.write_text(text)
    path.chmod(mode)
    return folder


async def test_a_program_is_searched_on_the_path_of_its_environment(tmp_path, monkeypatch):
    ours = program(tmp_path / "ours", "#!/bin/sh\necho ours\n")
    theirs = program(tmp_path / "theirs", "#!/bin/sh\necho theirs\n")
    monkeypatch.setenv("PATH", str(ours))

    child = start_child(["tool"], env={"PATH": f"/nowhere:{theirs}"}, cwd=None)
    assert await output(child) == b"theirs\n"
    await ended(child)


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


async def test_a_variable_without_a_name_is_not_passed_on():
    child = start_child(["/usr/bin/env", "-u", MARK], env={"": "1", "A": "2"}, cwd=None)

    assert await output(child) == b"A=2\n"
    await ended(child)


@pytest.mark.parametrize("closed", [[0], [1, 2], [0, 1, 2]], ids=str)
def test_a_child_starts_while_the_conductors_stdio_is_closed(closed, tmp_path):
    """A pipe could get 0, 1 or 2, which the child needs."""
    found = tmp_path / "found"
    script = f"""
import os
from conductor.transport.spawn import spawn_process
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


def test_unclaimed_early_programs_are_killed_with_their_descendants():
    us = psutil.Process()
    files, children = set(os.listdir("/proc/self/fd")), set(us.children())
    prestart(["/bin/sh", "-c", "sleep 3600 & wait"], env=ENV, cwd=None)
    started = set(us.children()) - children
    assert len(started) == 1

    end_prestarted()

    assert psutil.wait_procs(started, PATIENCE)[1] == []
    assert set(os.listdir("/proc/self/fd")) == files
