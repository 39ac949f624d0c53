"""`acp-conductor new proxy`: the written package works unchanged."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from support.mypy_cache import mypy_cache

from conductor.chainfile.json_schema import options_schema

pytestmark = pytest.mark.slow

CONDUCTOR = [sys.executable, "-m", "conductor"]


def run(*command, cwd):
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL
    )


@pytest.fixture
def written(tmp_path):
    result = run(*CONDUCTOR, "new", "proxy", "side-notes", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    return tmp_path / "side-notes"


def test_its_chain_runs(written):
    result = run(*CONDUCTOR, "prompt", "chain.yaml", "echo hello", cwd=written)

    assert result.returncode == 0, result.stderr
    assert '"Answer in one sentence."' in result.stdout
    assert run(*CONDUCTOR, "check", "chain.yaml", cwd=written).returncode == 0


@pytest.mark.fast
def test_its_metadata_name_existing_files(written, monkeypatch):
    project = tomllib.loads((written / "pyproject.toml").read_text())["project"]
    monkeypatch.syspath_prepend(written)

    module, _, name = project["entry-points"]["conductor.components"]["side-notes"].partition(":")
    cls = getattr(import_module(module), name)
    assert cls.__name__ == "SideNotes"
    # Shown by `components` and in editors.
    assert options_schema(cls)["properties"]["note"]["description"] == "The text of the note."


@pytest.mark.fast
def test_its_readme_names_what_exists(written):
    readme = (written / "README.md").read_text()

    assert "use: side-notes" in readme
    assert "side_notes.py" in readme
    project = tomllib.loads((written / "pyproject.toml").read_text())["project"]
    assert (written / project["readme"]).is_file()
    assert "@" not in readme  # a name that was not filled in


def test_it_passes_ruff_and_mypy(written, tmp_path):
    for tool in (["check", "--select", "E,F,W,B,UP,I"], ["format", "--check"]):
        result = run(sys.executable, "-m", "ruff", *tool, ".", cwd=written)
        assert result.returncode == 0, result.stdout
    cache = ("--cache-dir", mypy_cache(tmp_path / "cache"))
    strict = run(sys.executable, "-m", "mypy", *cache, "--strict", "side_notes.py", cwd=written)
    assert strict.returncode == 0, strict.stdout


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("json", "a Python module 'json' already exists"),
        ("Notes", "'Notes' cannot be the name of a package"),
        ("../up", "'../up' cannot be the name of a package"),
        ("context", "a component 'context' already"),
    ],
)
def test_invalid_names_are_refused(tmp_path, name, problem):
    result = run(*CONDUCTOR, "new", "proxy", name, cwd=tmp_path)

    assert (result.returncode, problem in result.stderr) == (2, True), result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fast
def test_nothing_is_overwritten(written):
    result = run(*CONDUCTOR, "new", "proxy", "side-notes", cwd=written.parent)

    assert result.returncode == 2
    assert "side-notes exists and is not empty" in result.stderr


def printed(output: str) -> dict[str, str]:
    """The commands that were printed, by their labels."""
    return dict(re.findall(r"^(Try|Install|Test) it: +(.*?)(?:   \(.*)?$", output, re.MULTILINE))


def shell(command, cwd):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["sh", "-c", command],
        cwd=cwd,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_printed_commands_work(tmp_path):
    commands = printed(run(*CONDUCTOR, "new", "proxy", "notes", cwd=tmp_path).stdout)

    tried, tested = shell(commands["Try"], tmp_path), shell(commands["Test"], tmp_path)

    assert "Answer in one sentence." in tried.stdout, tried.stderr
    assert "1 passed" in tested.stdout, tested.stdout + tested.stderr
