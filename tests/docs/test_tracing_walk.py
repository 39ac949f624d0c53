"""The walk at the beginning of docs/tracing.md: its commands print what the page shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest
from support.doc_snippets import ROOT, snippets

PAGE = ROOT / "docs" / "tracing.md"
DURATION = re.compile(r" *\d+(\.\d+)?(e-\d+)?( (s|ms|min)\b|  )| *0\.\d{3}\b")


def walk():
    """The blocks of the first section."""
    text = PAGE.read_text()
    end = text[: text.index("## One line per message")].count("\n")
    return [each for each in snippets(PAGE) if each.line <= end]


def without_times(text):
    """The words of each line, without durations and line numbers."""
    lines = re.sub(r"\S*proxies/permissions/proxy\.py:\d+", "permissions.py", text).splitlines()
    return [DURATION.sub(" N", line).split() for line in lines]


@pytest.mark.slow
def test_the_walk_from_the_symptom_to_the_cause(tmp_path):
    (tmp_path / "chains").symlink_to(ROOT / "chains")
    (tmp_path / "proxies").symlink_to(ROOT / "proxies")
    compared = 0
    blocks = walk()
    for index, block in enumerate(blocks):
        if block.file_name is not None:
            (tmp_path / block.file_name).write_text(block.text)
        for command in block.commands if block.language == "sh" else ():
            program, *arguments = shlex.split(command)
            assert program == "acp-conductor"
            result = subprocess.run(
                [sys.executable, "-m", "conductor", *arguments],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert result.returncode == (1 if "--through" in arguments else 0), result.stderr
            shown = blocks[index + 1] if index + 1 < len(blocks) else None
            if shown is not None and shown.language == "":
                expected = without_times(shown.text.replace("…\n", ""))
                assert without_times(result.stdout)[: len(expected)] == expected
                compared += 1

    assert compared == 4
