"""`acp-conductor new proxy`: what it writes works as it is written."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

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


def test_its_test_passes(written):
    result = run(sys.executable, "-m", "pytest", "-q", "-W", "error", cwd=written)

    assert result.returncode == 0, result.stdout
    assert "1 passed" in result.stdout


def test_its_test_notices_a_broken_proxy(written):
    module = written / "side_notes.py"
    module.write_text(module.read_text().replace("insert(0,", "insert(1,"))

    assert run(sys.executable, "-m", "pytest", "-q", cwd=written).returncode == 1


def test_its_chain_runs(written):
    result = run(*CONDUCTOR, "prompt", "chain.yaml", "echo hello", cwd=written)

    assert result.returncode == 0, result.stderr
    assert '"Answer in one sentence."' in result.stdout
    assert run(*CONDUCTOR, "check", "chain.yaml", cwd=written).returncode == 0


def test_its_metadata_name_what_is_there(written, monkeypatch):
    project = tomllib.loads((written / "pyproject.toml").read_text())["project"]
    monkeypatch.syspath_prepend(written)

    module, _, name = project["entry-points"]["conductor.components"]["side-notes"].partition(":")
    assert getattr(import_module(module), name).__name__ == "SideNotes"


def test_it_is_as_clean_as_our_own_code(written):
    for tool in (["check", "--select", "E,F,W,B,UP,I"], ["format", "--check"]):
        result = run(sys.executable, "-m", "ruff", *tool, ".", cwd=written)
        assert result.returncode == 0, result.stdout
    strict = run(sys.executable, "-m", "mypy", "--strict", "side_notes.py", cwd=written)
    assert strict.returncode == 0, strict.stdout


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("json", "there is a Python module called 'json' already"),
        ("Notes", "'Notes' cannot be the name of a package"),
        ("class", "'class' cannot be the name of a package"),
        ("../up", "'../up' cannot be the name of a package"),
    ],
)
def test_names_that_will_not_do(tmp_path, name, problem):
    result = run(*CONDUCTOR, "new", "proxy", name, cwd=tmp_path)

    assert (result.returncode, problem in result.stderr) == (2, True), result.stderr
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(written):
    result = run(*CONDUCTOR, "new", "proxy", "side-notes", cwd=written.parent)

    assert result.returncode == 2
    assert "side-notes exists and is not empty" in result.stderr


def test_the_proxy_of_the_readme_passes_its_test(tmp_path):
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    proxy, test = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[:2]
    (tmp_path / "test_context.py").write_text(proxy + test)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntrio_mode = true\n")

    result = run(sys.executable, "-m", "pytest", "-q", "-W", "error", cwd=tmp_path)

    assert "1 passed" in result.stdout, result.stdout
