"""`acp-conductor new proxy`: what it writes can be tried, installed and tested as it prints."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
ROOT = Path(__file__).parents[2]


def shell(command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(BIN), os.environ["PATH"]])
    return subprocess.run(
        ["sh", "-c", command],
        cwd=directory,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )


def printed(output: str) -> dict[str, str]:
    """The commands that were printed, by their labels."""
    return dict(re.findall(r"^(Try|Install|Test) it: +(.*?)(?:   \(.*)?$", output, re.MULTILINE))


@pytest.mark.parametrize("name", ["notes", "note-taker"])
def test_the_new_proxy_runs_and_its_test_passes(tmp_path: Path, name: str) -> None:
    commands = printed(shell(f"acp-conductor new proxy {name}", tmp_path).stdout)

    tried = shell(commands["Try"], tmp_path)
    tested = shell(commands["Test"], tmp_path)

    assert "Answer in one sentence." in tried.stdout, tried.stderr
    assert "1 passed" in tested.stdout, tested.stdout + tested.stderr


@pytest.mark.skipif(not os.environ.get("CI"), reason="installs from the package index: CI only")
def test_the_new_proxy_installs_into_another_environment_as_printed(tmp_path: Path) -> None:
    made = shell("acp-conductor new proxy notes", tmp_path)
    origin = re.search(r"pip install (\S+)$", made.stdout.strip())
    assert origin is not None, made.stdout
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True, timeout=120)
    commands = printed(made.stdout.replace(shlex.quote(sys.executable), str(python)))

    installed = shell(
        f"{python} -m pip install -q {origin[1]} && ({commands['Install']}) && {commands['Test']}",
        tmp_path,
    )
    (tmp_path / "chain.yaml").write_text(
        "version: 1\nproxies: [{use: notes, with: {note: Be kind.}}]\nagent: {use: test-agent}\n"
    )
    prompted = shell(f"{python} -m conductor prompt chain.yaml 'echo hello'", tmp_path)

    assert "1 passed" in installed.stdout, installed.stdout + installed.stderr
    assert "Be kind." in prompted.stdout, prompted.stderr


def test_a_name_that_would_hide_a_module_is_refused(tmp_path: Path) -> None:
    result = shell("acp-conductor new proxy json", tmp_path)

    assert result.returncode == 2
    assert "how about json-proxy?" in result.stderr
    assert not (tmp_path / "json").exists()
