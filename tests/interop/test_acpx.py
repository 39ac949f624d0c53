"""The README's command line of acpx, run by the real acpx from npm."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from support.doc_snippets import ROOT, snippets


def test_the_command_line_of_the_readme(node_peers: Path, tmp_path: Path) -> None:
    [command] = [
        command
        for snippet in snippets(ROOT / "README.md")
        if snippet.language == "sh"
        for command in snippet.commands
        if command.startswith("acpx")
    ]
    command = command.replace("/path/to/acp-conductor", f"{sys.executable} -m conductor")
    command = command.replace("/path/to/review.yaml", str(ROOT / "chains" / "hello.yaml"))
    program, *arguments = shlex.split(command)

    result = subprocess.run(
        [str(node_peers / "node_modules" / ".bin" / program), *arguments],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert result.returncode == 0, result.stdout + result.stderr
    assert "hello" in result.stdout.splitlines()
