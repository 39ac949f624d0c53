"""`acp-conductor completions`, in a real shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# What the shell does for TAB after the words.
COMPLETE = """
set -e
source {script}
COMP_WORDS=({words} "{begun}") COMP_CWORD={index}
_acp_conductor_completion acp-conductor
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def complete(run, tmp_path):
    """The completions that bash offers for a word that was begun."""
    script = tmp_path / "script"
    result = run("completions", "bash")
    assert (result.returncode, result.stderr) == (0, "")
    script.write_text(result.stdout)
    directory = str(Path(sys.executable).parent)

    def complete(*words: str) -> list[str]:
        *before, begun = ("acp-conductor", *words)
        shell = COMPLETE.format(
            script=script, words=" ".join(before), begun=begun, index=len(words)
        )
        found = subprocess.run(
            ["bash", "-c", shell],
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"},
        )
        assert found.stderr == ""
        return found.stdout.split()

    return complete


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes_commands_options_and_choices(complete):
    assert complete("comp") == ["components", "completions"]
    assert "--trace" in complete("run", "--tr")
    assert complete("trace", "sh") == ["show"]
    assert complete("completions", "") == ["bash", "zsh", "fish"]


@pytest.mark.parametrize(("shell", "line"), [("zsh", "#compdef"), ("fish", "complete --no-files")])
def test_other_shells_have_a_script(run, shell, line):
    result = run("completions", shell)

    assert (result.returncode, result.stderr) == (0, "")
    assert line in result.stdout
    assert 'string split "," ' not in result.stdout  # descriptions have commas
