"""`acp-conductor check` and `show` of names from the registry."""

from __future__ import annotations

import json

import pytest
from registry.conftest import binary_entry, put_into_store

from conductor.chainfile import load
from conductor.cli.check.components import check_registry, registry_lines
from conductor.registry.pins import UvxPin, write_lock


@pytest.fixture
def checked(chain_file, tmp_path, monkeypatch):
    """The diagnostics and lines of a chain with this agent; the registry has `echo`."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    document = {"agents": [binary_entry("https://example.org/echo.tgz")]}
    (tmp_path / "registry.json").write_text(json.dumps(document))

    def check(agent, more=""):
        path = chain_file(f"registry: ./registry.json\nagent: {agent}\n{more}")
        specs = load(path).flat()
        return check_registry(specs), list(registry_lines(specs))

    return check


def test_what_is_not_locked_is_a_warning(checked):
    (problem,), lines = checked("echo")

    assert problem.severity == "warning"
    assert (problem.location.line, problem.location.column) == (3, 8)
    assert problem.message.startswith("echo: echo 1.0.0 is not locked")
    assert "acp-conductor lock" in problem.help
    assert lines == ["echo: echo 1.0.0 (not locked, not installed)"]


def test_an_unknown_name_is_an_error_at_its_place(checked):
    (problem,), lines = checked("\n  name: mine\n  registry: ehco")

    assert (problem.severity, problem.location.line) == ("error", 5)
    assert "did you mean `echo`" in problem.help
    assert lines == []


def test_a_registry_that_was_not_fetched_is_a_warning(checked, tmp_path, monkeypatch, chain_file):
    path = chain_file("registry: https://example.org/registry.json\nagent: echo\n")
    (problem,) = check_registry(load(path).flat())

    assert problem.severity == "warning"
    assert "has not been fetched yet" in problem.message


def test_show_has_the_version_without_installing(run, chain_file, checked, tmp_path):
    checked("echo")
    path = chain_file("registry: ./registry.json\nagent: {registry: echo, install_scripts: yes}\n")
    lines = run("show", path).stdout.splitlines()

    assert "    registry: echo 1.0.0 (not locked, not installed)" in lines
    assert f"    from: {tmp_path}/registry.json" in lines
    assert "    install_scripts: yes" in lines


def test_an_interpreter_that_is_not_installed_is_a_warning(checked, tmp_path):
    pin = UvxPin("echo", "1.0.0", "3.11", ())
    write_lock(str(tmp_path / "chain.lock"), {"echo": pin})
    checked("echo")  # sets the directory of the store
    put_into_store(pin, interpreter=("missing-interpreter",))
    (problem,), lines = checked("echo")

    assert (problem.severity, problem.message) == (
        "warning",
        "echo: command not found: missing-interpreter",
    )
    assert lines == ["echo: echo 1.0.0 (uvx, 0 packages, locked, installed)"]
