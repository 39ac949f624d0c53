"""The real acpx from npm: the README's command line, agents of `install acpx`, a recorded agent."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from support.doc_snippets import ROOT, snippets


def acpx(node_peers: Path, directory: Path, *arguments: str) -> list[str]:
    """Run acpx; returns the lines that it prints."""
    result = subprocess.run(
        [str(node_peers / "node_modules" / ".bin" / "acpx"), *arguments],
        cwd=directory,
        env={**os.environ, "HOME": str(directory)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.splitlines()


def test_the_command_line_of_the_documentation(node_peers: Path, tmp_path: Path) -> None:
    [command] = [
        command
        for snippet in snippets(ROOT / "docs" / "editors.md")
        if snippet.language == "sh"
        for command in snippet.commands
        if command.startswith("acpx")
    ]
    command = command.replace("/path/to/acp-conductor", f"{sys.executable} -m conductor")
    command = command.replace("/path/to/review.yaml", str(ROOT / "chains" / "hello.yaml"))

    assert "hello" in acpx(node_peers, tmp_path, *shlex.split(command)[1:])


def test_a_recorded_agent_answers(node_peers: Path, tmp_path: Path) -> None:
    agent = f"{sys.executable} -m conductor trace replay opencode --as agent"

    assert "Hello." in acpx(node_peers, tmp_path, "--agent", agent, "exec", "Say hello.")


def install(directory: Path, *words: str) -> None:
    """`acp-conductor install acpx --write` with this home directory."""
    subprocess.run(
        [sys.executable, "-m", "conductor", "install", "acpx", *words],
        env={**os.environ, "HOME": str(directory)},
        check=True,
        timeout=60,
    )


def test_installed_and_wrapped_agents_answer_by_their_names(
    node_peers: Path, tmp_path: Path
) -> None:
    config = tmp_path / ".acpx" / "config.json"
    config.parent.mkdir()
    agent = {"command": f"{sys.executable} -m conductor.testing.agent"}
    config.write_text(json.dumps({"agents": {"mine": agent}}))

    install(tmp_path, "--chain", str(ROOT / "chains" / "hello.yaml"), "--write")
    install(tmp_path, "--use", "context:{text: Hello.}", "--wrap", "mine", "--write")

    assert "hello" in acpx(node_peers, tmp_path, "hello", "exec", "say hello")
    assert "Hello." in "".join(acpx(node_peers, tmp_path, "mine", "exec", "echo"))
