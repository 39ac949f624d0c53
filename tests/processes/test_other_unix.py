"""Without what only Linux has (see `other_unix`) a chain works, and process groups are ended."""

import shlex
import sys
from pathlib import Path
from signal import SIGKILL

import psutil
import pytest
from support.peers import process as editor_module
from support.peers.process import agent, proxy, running_below

LAUNCHER = Path(__file__).with_name("other_unix.py")
LEAVES = "(env -i sleep 3600 &); (sleep 3600 &);"


@pytest.fixture
def imported():
    """Each conductor is started by the launcher."""


@pytest.fixture(autouse=True)
def without_linux(monkeypatch):
    monkeypatch.setattr(editor_module, "CONDUCTOR", [sys.executable, str(LAUNCHER)])


def leaving():
    return ["sh", "-c", f"{LEAVES} exec {shlex.join(agent())}"]


def test_a_chain_works_and_ends_with_the_groups_of_its_components(start_agent):
    editor = start_agent(proxy("p"), leaving())
    editor.open()

    assert editor.ask("echo x")
    assert [each.name() for each in running_below()].count("sleep") == 2
    editor.close_stdin()
    assert editor.process.wait(60) == 0
    _, alive = psutil.wait_procs(running_below(), 60)
    assert alive == []


def test_a_component_that_was_killed_is_started_again(start_file):
    editor = start_file({"run": agent(), "name": "a"}, {"run": proxy("p"), "name": "p"})
    editor.open()
    before = {each.pid for each in editor.components}

    editor.components[0].send_signal(SIGKILL)

    editor.wait_log("component restarted")
    assert editor.ask("echo x")
    assert len({each.pid for each in editor.components} - before) == 1
    assert editor.leave() == 0


def test_the_groups_of_its_components_end_with_a_conductor_that_is_killed(start_agent):
    editor = start_agent(leaving())
    editor.open()

    editor.signal(SIGKILL)

    editor.process.wait(60)
    _, alive = psutil.wait_procs(running_below(), 60)
    assert alive == []
