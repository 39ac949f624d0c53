"""Processes that wait for the next client of a server."""

from __future__ import annotations

import json
import os
import socket
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest
import trio
from support.raw_json import compact
from support.remote_agents import program

from conductor.chainfile import load
from conductor.log import configure
from conductor.projects.reloadable_chain import ReloadableChain
from conductor.server.current_chain import CurrentChain
from conductor.server.spares import spare_processes
from conductor.transport.child_process import start_child
from conductor.transport.spawn import spare_programs

PATIENCE = 30
CAT = "version: 1\nprewarm: true\nagent: {run: [cat], inherit_env: false}\n"
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}


@pytest.fixture
async def kept(tmp_path):
    """The chain of a server that keeps a process of `cat`."""
    path = tmp_path / "chain.yaml"
    path.write_text(CAT)
    current = CurrentChain(ReloadableChain(load(path), partial(load, path)))
    async with spare_processes(current):
        await trio.testing.wait_all_tasks_blocked()
        yield current


def waiting() -> psutil.Process | None:
    (spare,) = spare_programs
    return None if spare.pid is None else psutil.Process(spare.pid)


def kill(process: psutil.Process) -> None:
    """Kill a child and wait until it is a zombie."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


async def end(child) -> None:
    child.transport.close_writing()
    await child.wait()
    child.close()


async def test_a_process_that_was_taken_is_replaced_after_a_pause(kept, autojump_clock):
    first = waiting()
    child = start_child(["cat"], env={}, cwd=None)

    assert first is not None
    assert child.pid == first.pid
    await trio.sleep(0.9)
    assert waiting() is None
    await trio.sleep(1.2)
    assert waiting() is not None
    await end(child)


async def test_a_process_that_ended_is_replaced_only_after_a_client_has_started_one(
    kept, autojump_clock, capfd
):
    first = waiting()
    assert first is not None
    configure("warning")
    kill(first)
    await trio.sleep(60)

    assert waiting() is None
    assert capfd.readouterr().err.count("spare program ended") == 1
    await end(start_child(["cat"], env={}, cwd=None))
    await trio.sleep(3)
    assert waiting() is not None


async def test_a_changed_chain_file_has_processes_of_its_own(kept, tmp_path, autojump_clock):
    first = waiting()
    assert first is not None

    replace(tmp_path / "chain.yaml", CAT.replace("[cat]", "[cat, -u]"))
    await trio.sleep(2.1)
    second = waiting()
    assert second is not None
    assert not first.is_running()
    assert second.cmdline() == ["cat", "-u"]

    replace(tmp_path / "chain.yaml", CAT.replace("prewarm: true", ""))
    await trio.sleep(2.1)
    assert spare_programs == []
    assert not second.is_running()


def replace(path: Path, text: str) -> None:
    """Replace a file, so that its stamp differs within one tick of the clock, too."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


async def test_the_process_ends_with_the_server(tmp_path, autojump_clock):
    (tmp_path / "chain.yaml").write_text(CAT)
    current = CurrentChain(ReloadableChain(load(tmp_path / "chain.yaml")))
    async with spare_processes(current):
        await trio.testing.wait_all_tasks_blocked()
        process = waiting()

    assert process is not None
    assert not process.is_running()
    assert spare_programs == []


async def test_without_prewarm_no_task_runs_until_a_client_finds_the_file_changed(
    tmp_path, autojump_clock
):
    path = tmp_path / "chain.yaml"
    path.write_text(CAT.replace("prewarm: true", ""))
    current = CurrentChain(ReloadableChain(load(path), partial(load, path)))
    before = tasks()
    async with spare_processes(current):
        await trio.testing.wait_all_tasks_blocked()
        assert tasks() == before

        replace(path, CAT)
        await trio.sleep(60)
        assert spare_programs == []
        current()
        await trio.testing.wait_all_tasks_blocked()
        assert waiting() is not None
        assert tasks() == before + 1

        replace(path, CAT.replace("prewarm: true", ""))
        await trio.sleep(2.1)
        assert (spare_programs, tasks()) == ([], before)
        replace(path, CAT)
        current()
        await trio.testing.wait_all_tasks_blocked()
        assert waiting() is not None


async def test_a_change_after_the_end_starts_nothing(tmp_path):
    path = tmp_path / "chain.yaml"
    path.write_text(CAT.replace("prewarm: true", ""))
    current = CurrentChain(ReloadableChain(load(path), partial(load, path)))
    async with spare_processes(current):
        pass

    replace(path, CAT)
    assert current().prewarm
    assert spare_programs == []


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


async def test_a_program_that_does_not_start_is_tried_once(tmp_path, autojump_clock, capfd):
    (tmp_path / "chain.yaml").write_text(CAT.replace("cat", "/no/such/program"))
    current = CurrentChain(ReloadableChain(load(tmp_path / "chain.yaml")))

    configure("warning")
    async with spare_processes(current):
        await trio.sleep(60)

    assert capfd.readouterr().err.count("spare program did not start") == 1


@pytest.mark.slow
def test_a_client_of_serve_gets_the_processes_that_waited(tmp_path):
    file = tmp_path / "chain.yaml"
    agent = [sys.executable, "-m", "conductor.testing.agent"]
    proxy = "{use: usage, isolate: true}"
    file.write_text(
        f"version: 1\nprewarm: true\nproxies: [{proxy}]\nagent: {{run: {json.dumps(agent)}}}\n"
    )
    words = ("serve", str(file), "--listen", f"unix:{tmp_path}/socket")
    merged = ("/bin/sh", "-c", 'exec "$@" 2>&1', "sh", sys.executable, "-m", "conductor")
    with program(*merged, "--log", "debug", "--log-format", "json", *words) as (server, line):
        assert server.stdout is not None
        events = [json.loads(line)] if line.startswith("{") else []

        def read(event: str, count: int) -> set[int]:
            while sum(each["event"] == event for each in events) < count:
                text = server.stdout.readline()
                events.extend([json.loads(text)] if text.startswith("{") else [])
            return {each["pid"] for each in events if each["event"] == event}

        waited = read("spare program started", 2)
        with socket.socket(socket.AF_UNIX) as client, client.makefile("rw") as stream:
            client.connect(f"{tmp_path}/socket")
            stream.write(compact(INITIALIZE) + "\n")
            stream.flush()
            assert "result" in json.loads(stream.readline())
            assert read("component started", 2) == waited
            assert len(read("spare program started", 4) - waited) == 2
        server.terminate()
        rest = psutil.Process(server.pid).children(recursive=True)
        server.wait(PATIENCE)

    assert psutil.wait_procs(rest, PATIENCE)[1] == []
