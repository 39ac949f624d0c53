"""Descendants are found, identified, killed and reaped, in any number and depth."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import trio

from conductor.transport import child_process as process_module
from conductor.transport.child_process import start_child

ROOT = Path(__file__).parents[2]
PATIENCE = 60
ENV = {"PATH": os.environ["PATH"]}


def run(script):
    """The output of a script that uses the package, and writes nothing to stderr."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stderr == ""
    return done.stdout


ZOMBIES = """
def zombies():
    import psutil
    return [
        each.pid for each in psutil.Process().children() if each.status() == psutil.STATUS_ZOMBIE
    ]
"""


@pytest.mark.slow
@pytest.mark.parametrize("detached", ["", "setsid"])
def test_adopted_children_are_reaped_when_they_end(detached):
    printed = run(f"""
import trio, os
from conductor.transport import process_tree
from conductor.transport.child_process import reap_orphans
from conductor.transport.child_process import start_child
from conductor.transport.process_tree import become_subreaper
{ZOMBIES}
process_tree._AGE = 0.5
script = "for n in 1 2 3 4 5; do ({detached} sleep 0.2 & echo $!); done; read line; exit 7"
async def main():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reap_orphans)
        child = start_child(["sh", "-c", script], env=dict(os.environ), cwd=None)
        text = b""
        while text.count(b"\\n") < 5:
            text += await child.transport.receive()
        with trio.fail_after(30):
            while any(os.path.exists(f"/proc/{{int(pid)}}") for pid in text.split()):
                await trio.sleep(0.02)
        print(len(zombies()), child.status)
        child.transport.write_now([b"\\n"])
        print(await child.wait())
        nursery.cancel_scope.cancel()
become_subreaper()
trio.run(main)
""")

    assert printed == "0 None\nexited with status 7\n"


def test_children_that_other_code_waits_for_are_not_reaped():
    printed = run(f"""
import os, subprocess, sys, trio
from multiprocessing import get_context
from conductor.transport import process_tree
from conductor.transport.child_process import start_child
from conductor.transport.process_tree import become_subreaper
{ZOMBIES}
become_subreaper()
kept = [
    subprocess.Popen(["sh", "-c", "exit 7"]),
    subprocess.Popen(["sh", "-c", "exit 7"], start_new_session=True),
]
other = get_context("fork").Process(target=os._exit, args=(7,))
other.start()
child = start_child(["sh", "-c", "exit 7"], env=dict(os.environ), cwd=None)
for pid in (*(each.pid for each in kept), other.pid, child.pid):
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
again = process_tree.reap_adopted(0.0)
for now in (1.0, again, again + 100):
    process_tree.reap_adopted(now)
print(len(zombies()), [each.wait() for each in kept], other.join() or other.exitcode,
      trio.run(child.wait), len(zombies()))
""")

    assert printed == "4 [7, 7] 7 exited with status 7 0\n"


def test_a_half_constructed_popen_of_another_thread_is_skipped():
    printed = run("""
import os, subprocess
from conductor.transport import process_tree
half_made = subprocess.Popen.__new__(subprocess.Popen)
left = os.posix_spawn("/bin/true", ["true"], {})
os.waitid(os.P_PID, left, os.WEXITED | os.WNOWAIT)
again = process_tree.reap_adopted(0.0)
print(process_tree.reap_adopted(again + 1), process_tree._children(os.getpid()))
""")

    assert printed == "None []\n"


def test_a_process_that_may_not_be_killed_does_not_delay_the_end():
    printed = run("""
import os, subprocess, time
from conductor.transport.process_tree import kill_descendants
child = subprocess.Popen(["sleep", "3600"])
kill = os.kill
def refuse(pid, number):  # as for a child that has become another user's
    raise PermissionError
os.kill = refuse
began = time.monotonic()
kill_descendants()
print(time.monotonic() - began < 3, child.poll())
kill(child.pid, 9)
child.wait()
""")

    assert printed == "True None\n"


@pytest.mark.parametrize("has_proc", [True, False])
def test_processes_that_left_the_group_of_a_component_are_killed_with_it(has_proc):
    """Without /proc and subreapers, as on macOS, too."""
    printed = run(
        f"""
from conductor.transport import process_tree
process_tree._HAS_PROC = {has_proc}
"""
        """
import os, trio
from conductor.transport.child_process import start_child
from conductor.transport.process_tree import become_subreaper
script = '''
setsid sh -c 'echo $$; exec sleep 3600' & read line
setsid env -i sh -c 'echo $$; exec sleep 3600' & read line
setsid sh -c 'env -i sleep 3600 & echo $!; env -i setsid sleep 3600 & echo $!; wait' &
read line
'''
def runs(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
async def main():
    bystander = start_child(["sleep", "3600"], env=dict(os.environ), cwd=None)
    child = start_child(["sh", "-c", script], env=dict(os.environ), cwd=None)
    text = b""
    for count in (1, 2, 4):
        while text.count(b"\\n") < count:
            text += await child.transport.receive()
        child.transport.write_now([b"\\n"])
    print(await child.wait())
    marked, unmarked, *below = map(int, text.split())
    with trio.fail_after(30):  # a killed process needs a moment to end on a machine under load
        while any(map(runs, (marked, *below))):
            await trio.sleep(0.01)
    print(os.path.exists(f"/proc/{bystander.pid}"), bystander.status)
    for pid in (unmarked, bystander.pid):
        os.kill(pid, 9)
become_subreaper()
trio.run(main)
"""
    )

    assert printed == "exited with status 0\nTrue None\n"


@pytest.mark.parametrize(("script", "status"), [("exit 7", 7), ("kill -9 $$", -9)])
async def test_a_childs_exit_is_noticed_without_pidfd(monkeypatch, script, status):
    monkeypatch.delattr(os, "pidfd_open")
    child = start_child(["/bin/sh", "-c", f"sleep 3600 & echo $!; {script}"], env=ENV, cwd=None)
    descendant = psutil.Process(int(await child.transport.receive()))

    with trio.fail_after(PATIENCE):
        told = await child.wait()

    monkeypatch.undo()  # psutil uses it
    assert told == process_module.describe_status(status)
    assert psutil.wait_procs([descendant], PATIENCE)[1] == []
    child.close()


GUARDED = """
import os, signal, sys, time, trio
from multiprocessing import get_context
from conductor.transport import process_tree
from conductor.transport.orphan_guard import start_orphan_guard
from conductor.transport.child_process import start_child
from conductor.transport.process_tree import become_subreaper

become_subreaper()
start_orphan_guard()

async def groups():
    ended = start_child(["true"], env=dict(os.environ), cwd=None)
    await ended.wait()
    argv = ["sh", "-c", "env -i sleep 3600 & echo $!; wait"]
    return start_child(argv, env=dict(os.environ), cwd=None)

async def main():
    child = await groups()
    print((await child.transport.receive()).decode().strip(), flush=True)

trio.run(main)
"""


def has_not_ended(pid):
    """False for a zombie: its new parent may not reap it."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_guard_ends_the_groups_though_a_plugin_forked(tmp_path):
    held = tmp_path / "held"
    printed = run(
        GUARDED
        + f"""
def hold():
    os.closerange(1, 3)
    time.sleep(3600)
other = get_context("fork").Process(target=hold)
other.start()
open({str(held)!r}, "w").write(str(other.pid))
os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    forked = psutil.Process(int(held.read_text()))

    try:
        until = time.monotonic() + PATIENCE
        while has_not_ended(int(printed)) and time.monotonic() < until:
            os.sched_yield()
        assert not has_not_ended(int(printed))
    finally:
        forked.kill()


def test_the_guard_kills_marked_processes_outside_of_the_groups():
    """The program that the guard becomes finds them; without it, only the groups are killed."""
    printed = run("""
import os, signal, trio
from conductor.transport.orphan_guard import start_orphan_guard
from conductor.transport.child_process import start_child

start_orphan_guard()

async def main():
    argv = ["sh", "-c", "setsid sh -c 'echo $$; exec sleep 3600'; wait"]
    child = start_child(argv, env=dict(os.environ), cwd=None)
    print((await child.transport.receive()).decode().strip(), flush=True)

trio.run(main)
os.kill(os.getpid(), signal.SIGKILL)
""")
    process = int(printed)

    try:
        until = time.monotonic() + PATIENCE
        while has_not_ended(process) and time.monotonic() < until:
            os.sched_yield()
        assert not has_not_ended(process)
    finally:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def test_the_guard_is_killed_last():
    printed = run(
        GUARDED
        + """
(guard,) = process_tree._reports
kill, killed = os.kill, []
os.kill = lambda pid, number: (killed.append(pid), kill(pid, number))
process_tree.kill_descendants()
print(killed.index(guard) == len(killed) - 1 > 0, process_tree._children(os.getpid()))
"""
    )

    assert printed.splitlines()[1:] == ["True []"]


def test_a_forked_process_leaves_the_guard_alone():
    printed = run(
        GUARDED
        + """
(guard,) = process_tree._reports
other = get_context("fork").Process(target=process_tree.kill_descendants)
other.start()
other.join()
print(other.exitcode, os.waitpid(guard, os.WNOHANG))
process_tree.kill_descendants()
"""
    )

    assert printed.splitlines()[1:] == ["0 (0, 0)"]


def test_a_guard_that_does_not_read_is_killed():
    printed = run(
        GUARDED
        + """
(guard,) = [pid for pid in process_tree._children(os.getpid()) if pid not in process_tree._started]
os.kill(guard, signal.SIGSTOP)
for number in range(20_000):
    process_tree._report(b"+ 1234567\\n")
_, status = os.waitpid(guard, 0)
print(os.waitstatus_to_exitcode(status), process_tree._reports)
process_tree.kill_descendants()
"""
    )

    assert printed.splitlines()[1:] == ["-9 {}"]


@pytest.mark.slow
def test_the_guard_of_a_nested_conductor_kills_its_processes():
    inner = GUARDED + "os.kill(os.getpid(), signal.SIGKILL)\n"
    printed = run(f"""
import os, sys, trio
from conductor.transport import process_tree
from conductor.transport.child_process import reap_orphans
from conductor.transport.child_process import start_child
from conductor.transport.process_tree import become_subreaper
process_tree._AGE = 0.2
async def main():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reap_orphans)
        child = start_child([sys.executable, "-c", {inner!r}], env=dict(os.environ), cwd=None)
        left = int(await child.transport.receive())
        print(os.path.exists(f"/proc/{{left}}"), await child.wait())
        with trio.fail_after(30):
            while process_tree._children(os.getpid()):
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
become_subreaper()
trio.run(main)
""")

    assert printed == "True was ended by SIGKILL\n"
