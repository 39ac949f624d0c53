"""Components of `agent`, `run FILE` and `wrap` are spawned before trio is imported."""

import json
import os
import subprocess
import sys

import pytest

from conductor.registry.lock_file import write_lock
from conductor.registry.pins import UvxPin, sealed
from conductor.registry.store import InstalledPackage, installing, package_directory

PROGRAM = """
import json, sys

class AtImportOfTrio:
    def find_spec(self, name, path=None, target=None):
        if name == "trio":
            spawn = sys.modules.get("conductor.transport.spawn")
            early = spawn._prestarted if spawn is not None else []
            print(json.dumps([[*each.argv, each.env.get("NAME")] for each in early]), flush=True)
            raise SystemExit(0)

sys.meta_path.insert(0, AtImportOfTrio())
from conductor.cli import main
main()
"""
SIGNALLED = """
import os, signal

read = os.read

def signalled(descriptor, size):
    os.kill(os.getpid(), signal.SIGUSR1)
    return read(descriptor, size)

os.read = signalled
"""
INITIALIZE = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'


def spawned_before_trio(*words: str, message: str = INITIALIZE, program: str = PROGRAM) -> object:
    """Run the command; the argv and the variable NAME of each program spawned before trio."""
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        input=message,
        env={name: value for name, value in os.environ.items() if name != "NAME"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_agent_spawns_its_components_before_trio_is_imported():
    started = spawned_before_trio("agent", "NAME=x sleep 3600", "sleep 3601")

    assert started == [["sleep", "3600", "x"], ["sleep", "3601", None]]


def test_run_spawns_its_components_before_trio_is_imported(tmp_path):
    file = tmp_path / "chain.yaml"
    file.write_text("version: 1\nproxies: [{use: usage}]\nagent: {run: [sleep, '3600']}\n")

    assert spawned_before_trio("run", str(file)) == [["sleep", "3600", None]]


def test_run_spawns_before_initialize_with_prewarm_and_isolated_plugins_too(tmp_path):
    file = tmp_path / "chain.yaml"
    proxy = "{use: usage, isolate: true}"
    file.write_text(
        f"version: 1\nprewarm: true\nproxies: [{proxy}]\nagent: {{run: [sleep, '1']}}\n"
    )

    assert spawned_before_trio("run", str(file), message="") == [
        [sys.executable, "-P", "-m", "conductor.standalone", "usage", None],
        ["sleep", "1", None],
    ]


def test_an_agent_of_the_registry_is_spawned_from_the_store_before_trio_is_imported(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    pin = sealed(UvxPin("echo", "1.0.0", "3.11", (), args=("3600",), env={"NAME": "x"}))
    with installing("echo", pin) as staging:
        (staging.directory / "echo").symlink_to("/bin/sleep")
        staging.record = InstalledPackage("echo")
    write_lock(str(tmp_path / "chain.lock"), {"echo": pin})
    file = tmp_path / "chain.yaml"
    file.write_text("version: 1\nagent: echo\n")

    assert spawned_before_trio("run", str(file)) == [
        [str(package_directory("echo", pin) / "echo"), "3600", "x"]
    ]


def test_wrap_spawns_the_agent_before_trio_is_imported(tmp_path):
    file = tmp_path / "chain.yaml"
    file.write_text("version: 1\nproxies: [{run: [sleep, '1']}]\nagent: {run: [sleep, '2']}\n")

    started = spawned_before_trio("wrap", "--use", "usage:{}", "--", "sleep", "3600")
    of_file = spawned_before_trio("wrap", "--chain", str(file), "--", "sleep", "3600")

    assert started == [["sleep", "3600", None]]
    assert of_file == [["sleep", "1", None], ["sleep", "3600", None]]


def test_the_signal_for_the_flight_recorder_ends_no_conductor_that_waits_for_its_client():
    started = spawned_before_trio("agent", "sleep 3600", program=SIGNALLED + PROGRAM)

    assert started == [["sleep", "3600", None]]


@pytest.mark.parametrize("message", ["", '{"jsonrpc":"2.0","method":"x"}\n'])
def test_nothing_is_spawned_before_the_client_sends_initialize(message):
    assert spawned_before_trio("agent", "sleep 3600", message=message) == []
