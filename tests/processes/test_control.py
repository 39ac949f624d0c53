"""`ps`, `trace dump` and `trace show PID` with running conductors."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.peers.process import CONDUCTOR, agent, proxy, words
from support.raw_json import compact

from bridges import shim_listener
from conductor.cli import ps
from conductor.control import client, directory
from conductor.control.client import ask, conductors, remove_stale_sockets
from conductor.control.directory import connect, usable_path
from conductor.files import lock_directory
from conductor.places import VIEW_PREFIX
from conductor.tracing.reader import Trace
from conductor.tracing.records import LogRecord, RequestRecord


@pytest.fixture(autouse=True)
def directories(tmp_path, monkeypatch):
    """A runtime and a state directory for each test."""
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        path = tmp_path / name
        path.mkdir(mode=0o700)
        monkeypatch.setenv(name, str(path))
    return tmp_path


@pytest.fixture
def sockets(directories):
    return directories / "XDG_RUNTIME_DIR" / "acp-conductor"


@pytest.fixture
def flights(directories):
    return directories / "XDG_STATE_HOME" / "acp-conductor" / "flight"


def command(*arguments):
    return subprocess.run(
        [*CONDUCTOR, *map(str, arguments)], capture_output=True, text=True, timeout=60
    )


def status(editor, is_wanted=lambda status: bool(status["chains"])):
    """The status of a conductor, as soon as it is as wanted."""
    while True:
        assert editor.process.poll() is None
        for line in command("ps", "--json").stdout.splitlines():
            found = json.loads(line)
            if found["pid"] == editor.pid and "chains" in found and is_wanted(found):
                return found


def test_ps_lists_chain_client_agent_sessions_and_turns(run_chain, sockets):
    editor = run_chain(agent(), proxy("p"), log="info")
    editor.request("initialize", protocolVersion=1, clientInfo={"name": "zed", "version": "7"})
    editor.answer(1)
    editor.answer(editor.request("session/new", cwd="/", mcpServers=[]))
    editor.prompt("hang")

    found = status(editor, lambda status: status["chains"][0]["turns"])

    (chain,) = found["chains"]
    assert (chain["client"], chain["sessions"]) == ("zed 7", ["s1"])
    assert [each["name"] for each in chain["components"]] == ["pass_proxy", "echo_agent"]
    assert {each["state"] for each in chain["components"]} == {"running"}
    assert [each["pid"] for each in chain["components"]] == [c.pid for c in editor.components]
    (turn,) = chain["turns"]
    assert turn["session"] == "s1"
    assert 0 <= turn["seconds"] < 60
    assert found["memory"] > 10e6
    assert found["memory_of_components"] > 5e6
    head, row = command("ps").stdout.splitlines()
    assert head.split()[:4] == ["PID", "CHAIN", "CLIENT", "AGENT"]
    assert f"{editor.pid}" in row
    assert "zed 7" in row
    editor.signal(signal.SIGTERM)
    editor.wait()
    assert not sockets.exists()
    assert command("ps").stdout == "no conductor of this user runs\n"


def test_ps_names_the_command_wrap_although_an_argument_of_the_agent_is_a_command(start):
    editor = start("wrap", "--use", "usage", "--", *agent(), "run")
    editor.initialize()

    assert status(editor)["command"] == "wrap"
    editor.leave()


@pytest.mark.fast
def test_ps_leaves_out_the_process_of_a_plugin_that_another_conductor_has(monkeypatch):
    def status(pid, command, component):
        component = {"pid": component, "name": "x", "state": "running", "restarts": 0}
        labels = dict.fromkeys(("client", "client_label", "agent"), "")
        chain = {"name": f"c{pid}", "sessions": [], "turns": [], "components": [component]}
        sizes = {"memory": 0, "memory_of_components": 0, "started": 0.0}
        return {"pid": pid, "command": command, "chains": [chain | labels], **sizes}

    found = [status(1, "run", 2), status(2, "", None), status(3, "", 4), status(4, "proxy", None)]
    unknown = {"pid": 2, "error": "no answer"}
    monkeypatch.setattr("conductor.control.client.conductors", lambda: [*found, unknown])

    lines = CliRunner().invoke(ps.command).output.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        *(["1", "c1"], ["3", "c3"], ["4", "c4"], ["2", "-"])
    ]
    assert len(CliRunner().invoke(ps.command, ["--json"]).output.splitlines()) == 5


def test_only_the_user_can_connect(run_chain, sockets):
    editor = run_chain(agent(), log="info")
    editor.open()
    status(editor)

    assert sockets.stat().st_mode & 0o777 == 0o700
    assert (sockets / f"{editor.pid}.sock").stat().st_mode & 0o777 == 0o600
    editor.leave()


def test_a_socket_that_a_killed_conductor_left_is_removed(run_chain, sockets):
    editor = run_chain(agent(), log="info")
    editor.open()
    status(editor)
    editor.signal(signal.SIGKILL)
    editor.process.wait()
    assert [path.name for path in sockets.iterdir()] == [f"{editor.pid}.sock"]

    assert command("ps", "--json").stdout == ""

    assert list(sockets.iterdir()) == []


@pytest.mark.fast
def test_only_sockets_without_a_listener_are_removed(sockets, tmp_path):
    """Not what another program is still binding, and not what is no socket."""
    sockets.mkdir(mode=0o700)
    with ExitStack() as stack:
        for name in ("1.sock", "2.sock", "3.new", "5.sock", "no-number.sock"):
            bound = stack.enter_context(socket.socket(socket.AF_UNIX))
            with usable_path(sockets / name) as address:
                bound.bind(address)
            if name == "1.sock":
                bound.listen(1)
            elif name == "2.sock":
                bound.close()
        busy = stack.enter_context(socket.socket(socket.AF_UNIX))
        with usable_path(sockets / "7.sock") as address:
            busy.bind(address)
        busy.listen(0)
        stack.enter_context(connect(sockets / "7.sock"))
        (sockets / "8.sock").write_text("no socket")
        (sockets / "9.sock").symlink_to(tmp_path)

        remove_stale_sockets()

        kept = {*(f"{n}.sock" for n in (1, 7, 8, 9)), "3.new", "no-number.sock"}
        assert set(os.listdir(sockets)) == kept


@pytest.fixture
def temporary(directories, monkeypatch):
    """The directory for temporary files."""
    path = directories / "TMPDIR"
    path.mkdir(mode=0o700)
    monkeypatch.setattr("tempfile.tempdir", str(path))
    monkeypatch.setattr(client, "_BRIDGE_ROOT", str(path))
    return path


@pytest.mark.fast
async def test_ps_removes_directories_without_a_lock_and_no_others(temporary, monkeypatch):
    monkeypatch.setattr(client, "_MIN_AGE", 0)
    monkeypatch.setattr(shim_listener, "_MAX_PATH", 1000)
    in_use = shim_listener.ShimListener()
    used = Path(in_use.open().removeprefix("unix:")).parent
    stale, kept, shared, locked, other = (
        temporary / name
        for name in (*(f"{VIEW_PREFIX}{n}" for n in ("stale", "kept", "shared", "locked")), "other")
    )
    left = temporary / "acp-mcp-left"
    for path in (stale, kept, shared, locked, left, other):
        path.mkdir(mode=0o755 if path == shared else 0o700)
    (temporary / "acp-mcp-link").symlink_to(other)
    (left / "s").touch()
    (stale / "trace.jsonl.1").touch()
    (kept / "notes").touch()
    lock = lock_directory(str(locked))

    shown = CliRunner().invoke(ps.command)

    assert shown.stdout == "no conductor of this user runs\n"
    assert sorted(line.split()[1] for line in shown.stderr.splitlines()) == sorted(
        f"{path}," for path in (stale, left)
    )
    assert sorted(temporary.iterdir()) == sorted(
        (used, kept, shared, locked, other, temporary / "acp-mcp-link")
    )
    os.close(lock)
    in_use.close()


@pytest.mark.fast
def test_a_new_directory_is_not_locked_yet_and_stays(temporary):
    new = temporary / "acp-mcp-new"
    new.mkdir(mode=0o700)

    assert CliRunner().invoke(ps.command).stderr == ""
    assert new.exists()


def test_a_directory_that_others_can_read_is_not_used(run_chain, sockets):
    sockets.mkdir()
    sockets.chmod(0o755)
    editor = run_chain(agent(), log="debug")
    editor.open()

    assert "not a private directory" in editor.wait_log("no control socket")
    assert list(sockets.iterdir()) == []
    editor.leave()


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a directory of another user")
def test_a_directory_that_another_user_has_made_stops_no_command(directories, monkeypatch):
    """Its name, in the shared `/tmp`, can be foreseen."""
    other = directories / f"runtime-{os.geteuid()}"
    other.mkdir()
    os.chown(other, 65534, 65534)
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("TMPDIR", str(directories))
    if Path(f"/run/user/{os.geteuid()}").exists():
        pytest.skip("the directory in /tmp is not used here")

    for line in (["ps"], ["ps", "--json"]):
        done = command(*line)
        assert "Traceback" not in done.stderr
        assert "sockets of conductors not read" in done.stderr
        assert done.returncode == 0
    assert list(other.iterdir()) == []


@pytest.mark.fast
@pytest.mark.parametrize("mode", [0o777, 0o755])
def test_no_socket_is_put_where_others_can_replace_it(tmp_path, monkeypatch, mode):
    parent = tmp_path / "parent"
    parent.mkdir()
    parent.chmod(mode)
    if mode == 0o755:
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
        if parent.stat().st_uid == 0:
            os.chown(parent, 4712, 4712)
    monkeypatch.setattr(directory, "runtime_directory", lambda: parent / "acp-conductor")

    with pytest.raises(directory.PrivateDirectoryError, match="other users may replace"):
        directory.private_runtime_directory()
    assert list(parent.iterdir()) == []


@pytest.mark.fast
def test_a_socket_on_which_another_user_listens_is_not_asked(sockets, monkeypatch):
    """In place of a conductor: its records would be shown."""
    sockets.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        with usable_path(sockets / "1.sock") as address:
            listener.bind(address)
        listener.listen()
        connect(sockets / "1.sock").close()
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
        with pytest.raises(PermissionError):
            connect(sockets / "1.sock")


def test_a_conductor_that_does_not_answer_delays_no_other(run_chain, sockets):
    editor = run_chain(agent(), log="info")
    editor.open()
    status(editor)
    with socket.socket(socket.AF_UNIX) as silent:
        with usable_path(sockets / f"{os.getpid()}.sock") as address:
            silent.bind(address)
        silent.listen()

        begun = time.monotonic()
        found = {each["pid"]: each for each in conductors()}
        took = time.monotonic() - begun
        (row,) = (line for line in command("ps").stdout.splitlines() if str(os.getpid()) in line)

    assert found[os.getpid()] == {"pid": os.getpid(), "error": "no answer within a second"}
    assert len(found[editor.pid]["chains"]) == 1
    assert took < 3
    assert row.endswith("no answer")
    assert [each["pid"] for each in conductors()] == [editor.pid]
    editor.leave()


@pytest.mark.fast
def test_trace_dump_writes_the_flight_recorder(run_chain, flights):
    editor = run_chain(agent(), proxy("p"), log="info")
    editor.open()
    editor.ask("echo hello")
    status(editor)

    path = command("trace", "dump", editor.pid).stdout.strip()

    assert Path(path).parent == flights
    assert Path(path).stat().st_mode & 0o777 == 0o600
    assert flights.stat().st_mode & 0o777 == 0o700
    trace = Trace.load(path)
    asked = [each.method for each in trace.messages if isinstance(each, RequestRecord)]
    assert asked.count("session/prompt") == 2
    assert trace.header.payloads == "head"
    assert path in editor.wait_log("flight recorder written")
    shown = command("trace", "show", path, "--method", "session/prompt", "--hop", "0").stdout
    assert '"echo hello"' in shown
    editor.leave()


def test_a_signal_writes_the_flight_recorder(run_chain, flights):
    editor = run_chain(agent(), log="info")
    editor.open()
    editor.signal(signal.SIGUSR1)

    editor.wait_log("flight recorder written")

    assert editor.ask("echo again")
    (path,) = flights.iterdir()
    assert [each.method for each in Trace.load(path).messages][:2] == ["initialize"] * 2
    editor.leave()


def test_a_failure_writes_the_flight_recorder(run_chain, flights):
    editor = run_chain(agent("--back", "resume"), log="info")
    editor.open()
    editor.answer(editor.prompt("die 3"))
    editor.ask("echo again")
    editor.leave()

    (path,) = flights.iterdir()
    records = Trace.load(path).records
    logged = [each for each in records if isinstance(each, LogRecord)]
    failure = next(each for each in logged if each.level == "error")
    assert (failure.event, failure.component) == ("component failed", "misbehave")
    assert any(
        isinstance(each, RequestRecord) and each.method == "session/prompt" for each in records
    )


CRASHING = """
import trio
from conductor.chain.chain import Chain

serve_client = Chain._serve_client

async def crash(self, *args):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_client, self, *args)
        await self.initialized.wait()
        raise RuntimeError("a mistake in the conductor")

Chain._serve_client = crash

from conductor.cli import main

main()
"""


def test_a_crash_of_the_conductor_itself_writes_the_flight_recorder(tmp_path, flights):
    (tmp_path / "crashing.py").write_text(CRASHING)
    initialize = {"jsonrpc": "2.0", "id": 0, "method": "initialize"}
    params = {"protocolVersion": 1, "clientCapabilities": {}}
    done = subprocess.run(
        [sys.executable, tmp_path / "crashing.py", "agent", *words(agent())],
        input=compact(initialize | {"params": params}) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 1
    assert "RuntimeError: a mistake in the conductor" in done.stderr
    (path,) = flights.iterdir()
    assert [each.method for each in Trace.load(path).messages][:2] == ["initialize"] * 2


def test_files_of_the_flight_recorder_are_bounded(run_chain, flights):
    editor = run_chain(agent(), log="info")
    editor.open()
    status(editor)
    for _ in range(25):
        assert Path(ask(editor.pid, "dump")["file"]).exists()

    assert len(list(flights.iterdir())) == 20
    editor.leave()


@pytest.mark.fast
def test_trace_show_shows_and_follows_a_running_conductor(run_chain):
    editor = run_chain(agent(), log="info")
    editor.open()
    status(editor)
    shown = command("trace", "show", editor.pid, "--hop", "0").stdout
    assert "session/new" in shown
    assert "session/prompt" not in shown
    number = re.findall(r" (\d+)  client → .* session/new", shown)[0]
    assert command("trace", "why", editor.pid, number).stdout.startswith("session/new  ")

    following = subprocess.Popen(
        [*CONDUCTOR, "trace", "show", str(editor.pid), "--follow"], stdout=subprocess.PIPE
    )
    editor.ask("echo hello")
    lines = iter(following.stdout.readline, b"")
    assert any(b"session/new" in line for line in lines)
    assert any(b'session/prompt  "echo hello"' in line for line in lines)
    editor.close_stdin()
    following.stdout.read()
    following.stdout.close()
    assert following.wait(60) == 0
    editor.wait()


def test_with_a_trace_file_dump_and_show_use_it(start, chain_file, tmp_path, flights):
    file = tmp_path / "t.jsonl"
    editor = start("run", "--trace", file.name, chain_file(agent()), cwd=tmp_path)
    editor.open()
    assert status(editor)["trace"] == str(file)  # commands run in other directories

    assert command("trace", "dump", editor.pid).stdout == f"{file}\n"
    for options in ((), ("--stats",)):
        assert "session/new" in command("trace", "show", editor.pid, *options).stdout
    assert not flights.exists()
    editor.leave()


def test_of_no_conductor_is_said_so(run_chain):
    result = command("trace", "dump", os.getpid())

    assert result.returncode == 2
    assert f"no conductor of this user has the process id {os.getpid()}" in result.stderr
