"""`env`, `inherit_env` and `cwd` are each component's own."""

import os

import pytest
from support.peers.process import probe, proxy, words


@pytest.mark.fast
def test_env_adds_to_the_conductors_environment(start_file, monkeypatch):
    monkeypatch.setenv("FROM_US", "ours")
    monkeypatch.setenv("CHANGED", "before")
    editor = start_file({"run": probe(), "env": {"CHANGED": "after", "ADDED": "new"}})
    editor.open()

    assert editor.ask("env FROM_US") == "ours"
    assert editor.ask("env CHANGED") == "after"
    assert editor.ask("env ADDED") == "new"
    assert editor.leave() == 0


@pytest.mark.fast
def test_null_in_env_removes_an_inherited_variable(start_file, monkeypatch):
    monkeypatch.setenv("FROM_US", "ours")
    monkeypatch.setenv("KEPT", "ours, too")
    editor = start_file({"run": probe(), "env": {"FROM_US": None}})
    editor.open()

    assert editor.ask("env FROM_US") == "unset"
    assert editor.ask("env KEPT") == "ours, too"
    assert editor.leave() == 0


def test_a_component_with_inherit_env_false_has_only_its_env(start_file):
    editor = start_file({"run": probe(), "env": {"ONLY": "this"}, "inherit_env": False})
    editor.open()

    assert editor.ask("env ONLY") == "this"
    assert editor.ask("env PATH") == "unset"
    assert editor.ask("env ACP_CONDUCTOR_TREE") != "unset"  # marks its descendants
    assert int(editor.ask("environ")) <= 3  # Python may add LC_CTYPE
    assert editor.leave() == 0


def test_env_of_one_component_is_not_visible_to_another(start_file):
    editor = start_file({"run": probe()}, {"run": proxy("p"), "env": {"SECRET": "the proxy's"}})
    editor.open()

    assert editor.ask("env SECRET") == "p>[p]unset"
    assert editor.leave() == 0


def test_assignments_before_a_command_set_its_environment(start):
    (command,) = words(probe())
    editor = start("agent", f"ADDED='a b' EMPTY= {command}")
    editor.open()

    assert editor.ask("env ADDED") == "a b"
    assert editor.ask("env EMPTY") == ""
    assert editor.leave() == 0


@pytest.mark.parametrize("written", ["sub", "./sub", "{absolute}/sub"])
def test_cwd_sets_the_working_directory(start_file, tmp_path, written):
    (tmp_path / "sub").mkdir()
    cwd = written.format(absolute=tmp_path)
    editor = start_file({"run": probe(), "cwd": cwd})
    editor.open()

    assert editor.ask("cwd") == str(tmp_path / "sub")
    assert editor.leave() == 0


def test_the_default_working_directory_is_the_conductors(start_file):
    editor = start_file({"run": probe()})
    editor.open()

    assert editor.ask("cwd") == os.getcwd()
    assert editor.leave() == 0


def test_a_server_over_acp_is_refused_where_the_bridge_is_off(start_file):
    editor = start_file({"run": probe()}, mcp_bridge="off")
    editor.open()
    server = {"type": "acp", "name": "notes", "id": "notes", "serverId": "notes"}

    refused = editor.answer(editor.request("session/new", cwd="/", mcpServers=[server]))
    accepted = editor.answer(editor.request("session/new", cwd="/", mcpServers=[]))

    assert "mcp_bridge" in str(refused["error"])
    assert "result" in accepted
    assert editor.leave() == 0
