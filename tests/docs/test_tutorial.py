"""The chain and the proxy of the tutorial do what the page says."""

from __future__ import annotations

import subprocess
import sys
from datetime import date

import pytest
from support.doc_snippets import ROOT, snippets

PAGE = ROOT / "docs" / "tutorial.md"


@pytest.fixture
def run(tmp_path):
    for each in snippets(PAGE):
        if each.file_name is not None:
            (tmp_path / each.file_name).write_text(each.text)

    def run(*arguments):
        command = [sys.executable, "-m", "conductor", *arguments]
        return subprocess.run(
            command,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


@pytest.mark.slow
def test_the_trace_has_the_text_behind_context_only(run):
    prompt = run("prompt", "review.yaml", "echo Good morning", "--trace", "morning.jsonl")
    shown = run("trace", "show", "morning.jsonl", "--method", "session/prompt").stdout

    assert "Answer in one sentence." in prompt.stdout
    lines = [line for line in shown.splitlines() if "→" in line]
    with_text = ["Answer in one sentence." in line for line in lines]
    assert with_text == ["client →" not in line for line in lines]
    assert len(set(with_text)) == 2


@pytest.mark.slow
def test_the_proxy_changes_the_prompt(run):
    tried = run("try", "today.py")

    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert f"Today is {date.today()}. Answer in English." in tried.stdout
