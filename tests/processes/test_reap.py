"""`reap` ends what killed conductors have left, and nothing else."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import attrs
import psutil
import pytest
from support.peers.process import CONDUCTOR, agent, is_guard, is_running, proxy

from bridges import socket_directory
from conductor.control import temporary_directories
from conductor.control.directory import usable_path
from conductor.control.leftovers import Leftover, _end, find_leftovers, leftovers_of
from conductor.files import lock_directory
from conductor.transport.process_tree import MARK, conductors_of_mark, new_mark, own_mark

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def alone():
    """One test at a time: each would end what the other has left."""
    with Path(__file__).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(autouse=True)
def directories(tmp_path, monkeypatch):
    """Directories for sockets and temporary files, for each test."""
    for name in ("XDG_RUNTIME_DIR", "TMPDIR"):
        path = tmp_path / name
        path.mkdir(mode=0o700)
        monkeypatch.setenv(name, str(path))
    return tmp_path


def reap(*arguments, **options):
    return subprocess.run(
        [*CONDUCTOR, "reap", *arguments],
        **{"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 60}
        | options,
        check=True,
    ).stdout


def kill_with_guard(editor):
    """Kill a conductor so that its components are left; returns them."""
    children = psutil.Process(editor.pid).children(recursive=True)
    for each in filter(is_guard, children):
        each.kill()
    left = editor.components
    for each in left:
        each.suspend()  # else they end at EOF
    editor.signal(signal.SIGKILL)
    editor.process.wait()
    return left


def wait_socket(directories, pid):
    path = directories / "XDG_RUNTIME_DIR" / "acp-conductor" / f"{pid}.sock"
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end
        os.sched_yield()
    return path


def test_what_a_killed_conductor_left_is_shown_then_ended(run_chain, directories):
    living = run_chain(agent(), proxy("q"), log="info")
    living.open()
    editor = run_chain(agent("--ignore-term"), proxy("p"), log="info")
    editor.open()
    path = wait_socket(directories, editor.pid)
    left = kill_with_guard(editor)
    assert len(left) == 2

    shown = reap("--dry-run")

    assert [f"process {each.pid}: " in shown for each in left] == [True, True]
    assert f"control socket: {path}" in shown
    assert not any(f"process {each.pid}:" in shown for each in living.components)
    assert "--yes ends" in reap()
    assert all(each.is_running() for each in left)
    assert path.exists()
    assert reap("--yes").endswith("done\n")
    assert not any(map(is_running, left))
    assert not path.exists()
    assert not any(f"process {each.pid}:" in reap("--dry-run") for each in left)
    assert len(living.components) == 2
    assert living.ask("echo again")
    living.leave()


def test_components_of_a_nested_conductor_are_spared(run_chain):
    editor = run_chain(agent(), [*CONDUCTOR, "proxy", subprocess.list2cmdline(proxy("n"))])
    editor.open()
    below = psutil.Process(editor.pid).children(recursive=True)
    assert len(below) >= 4

    shown = reap("--yes")

    assert not any(f"process {each.pid}:" in shown for each in below)
    assert all(each.is_running() for each in below)
    assert editor.ask("echo again")
    editor.leave()


def ended_pid():
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    return process.pid


def test_a_leftover_is_found_with_its_group_and_its_descendants_without_mark():
    script = "env -i setsid sleep 1000 & env -i sleep 1000 & echo; exec sleep 1000"
    process = subprocess.Popen(
        ["sh", "-c", script],
        env={**os.environ, MARK: f"{ended_pid()}-0123456789abcdef/1/"},
        process_group=0,
        stdout=subprocess.PIPE,
    )
    process.stdout.readline()
    expected = [psutil.Process(process.pid), *psutil.Process(process.pid).children()]

    shown = reap("--dry-run")
    assert len(expected) == 3
    assert [each for each in expected if f"process {each.pid}: " not in shown] == []
    reap("--yes")

    assert process.wait() == -signal.SIGTERM
    process.stdout.close()
    assert not any(map(is_running, expected))


def process(pid, mark="", *, parent=1, group=None, started=50, **settings):
    settings = {"has_ended": False, "is_own": True, "command": "x"} | settings
    return Leftover(pid, parent, pid if group is None else group, started, mark=mark, **settings)


GONE = "77-a/1/"  # no process has this number, or one that is no conductor
LIVING = "10-a/1/"


@pytest.mark.fast
@pytest.mark.parametrize(
    ("processes", "left"),
    [
        ([process(20, GONE)], [20]),
        ([process(20)], []),
        ([process(10, started=1), process(20, LIVING)], []),
        ([process(10, started=1, has_ended=True), process(20, LIVING)], [20]),
        ([process(10, started=51), process(20, LIVING)], [20]),
        ([process(10, started=50), process(20, LIVING)], []),
        ([process(10, started=1), process(20, GONE + "/" + LIVING)], []),
        ([process(20, GONE, is_own=False)], []),
        ([process(20, GONE, has_ended=True)], []),
        ([process(20, GONE), process(21, parent=20), process(22, parent=21)], [20, 21, 22]),
        ([process(20, GONE), process(21, parent=20, is_own=False)], [20, 21]),
        ([process(10, started=1), process(20, GONE), process(21, LIVING, parent=20)], [20]),
        ([process(20, GONE), process(21, group=20)], [20, 21]),
        ([process(20, GONE), process(21, group=20, is_own=False)], [20]),
        ([process(20, GONE, group=5), process(21, group=5)], [20]),
        ([process(10, started=1), process(20, GONE), process(21, LIVING, group=20)], [20]),
        ([process(99, GONE, parent=98), process(98, GONE), process(20, GONE)], [20]),
        ([process(30, GONE, group=4), process(20, GONE, group=9)], [30, 20]),
    ],
)
def test_leftovers_are_those_of_ended_conductors_with_what_they_started(processes, left):
    assert [each.pid for each in leftovers_of(processes, own=99)] == left


@pytest.mark.fast
def test_a_process_that_has_got_the_number_of_a_leftover_is_not_ended():
    mark = f"{ended_pid()}-0123456789abcdef/1/"
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, MARK: mark}) as sleeping:
        (found,) = (each for each in find_leftovers() if each.pid == sleeping.pid)
        _end([attrs.evolve(found, started=found.started - 1)])
        _end([attrs.evolve(found, mark="")])
        assert sleeping.poll() is None
        _end([found])

    assert sleeping.returncode == -signal.SIGTERM


@pytest.mark.fast
@pytest.mark.parametrize(("answer", "is_removed"), [(b"n\n", False), (b"y\n", True)])
def test_on_a_terminal_it_asks_first(directories, answer, is_removed):
    stale = directories / "XDG_RUNTIME_DIR" / "acp-conductor" / f"{ended_pid()}.sock"
    stale.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener, usable_path(stale) as address:
        listener.bind(address)
    controller, terminal = pty.openpty()
    os.write(controller, answer)
    shown = reap(stdin=terminal)
    os.close(controller)
    os.close(terminal)

    assert f"control socket: {stale}\n" in shown
    assert "End and remove these? [y/N]" in shown
    assert shown.endswith("done\n") is is_removed
    assert stale.exists() is not is_removed


@pytest.mark.parametrize("mark", ["", "0123456789abcdef/1/", "PID-0/1/", "999999999-0/1//PID-0/1/"])
def test_processes_without_mark_or_with_a_living_conductor_are_no_leftovers(mark):
    mark = mark.replace("PID", str(os.getpid()))
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, MARK: mark}) as process:
        found = [each.pid for each in find_leftovers()]
        process.kill()

    assert process.pid not in found


def test_reap_spares_itself_and_its_ancestors():
    mark = f"{ended_pid()}-0123456789abcdef/1/"
    script = f"{sys.executable} -m conductor reap --yes; echo still here"
    done = subprocess.run(
        ["sh", "-c", script],
        env={**os.environ, MARK: mark},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.stdout.endswith("still here\n"), done


def test_a_mark_names_its_conductors():
    assert conductors_of_mark(own_mark())[-1] == os.getpid()
    assert conductors_of_mark(new_mark())[-1] == os.getpid()
    assert conductors_of_mark("12-ab/3//45-cd/6/") == [12, 45]


@pytest.mark.fast
def test_new_directories_and_links_are_not_stale(directories, monkeypatch):
    temporary = directories / "TMPDIR"
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setattr(temporary_directories, "_BRIDGE_ROOT", str(temporary))
    new = temporary / "acp-mcp-new"
    new.mkdir(mode=0o700)
    (temporary / "acp-mcp-link").symlink_to(new)
    assert temporary_directories.stale_directories() == []
    temporary_directories.remove_directory(str(new))
    assert new.exists()

    monkeypatch.setattr(temporary_directories, "_MIN_AGE", 0)

    assert temporary_directories.stale_directories() == [str(new)]


@pytest.mark.fast
def test_directories_without_a_lock_are_removed_others_stay(directories, monkeypatch):
    monkeypatch.setattr(temporary_directories, "_MIN_AGE", 0)
    monkeypatch.setattr(temporary_directories, "_BRIDGE_ROOT", str(directories / "TMPDIR"))
    monkeypatch.setattr("tempfile.tempdir", str(directories / "TMPDIR"))
    monkeypatch.setattr(socket_directory, "_MAX_PATH", 1000)
    in_use = socket_directory.SocketDirectory.make()
    view = temporary_directories.VIEW_PREFIX
    stale, kept, shared, locked = (
        directories / "TMPDIR" / f"{view}{name}" for name in ("stale", "kept", "shared", "locked")
    )
    left = directories / "TMPDIR" / "acp-mcp-left"
    for path in (stale, kept, shared, locked, left):
        path.mkdir(mode=0o755 if path == shared else 0o700)
    (left / "s").touch()
    (stale / "trace.jsonl.1").touch()
    (kept / "notes").touch()
    lock = lock_directory(str(locked))

    found = temporary_directories.stale_directories()
    for path in found:
        temporary_directories.remove_directory(path)

    assert sorted(map(Path, found)) == sorted((stale, kept, left))
    assert sorted((directories / "TMPDIR").iterdir()) == sorted(
        (Path(in_use.directory), kept, shared, locked)
    )
    os.close(lock)
    in_use.remove()
