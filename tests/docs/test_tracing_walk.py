"""docs/tracing.md: its commands, from the top down in an empty directory, print what it shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest
import yaml
from support.doc_snippets import ROOT, snippets

PAGE = ROOT / "docs" / "tracing.md"
DURATION = re.compile(r" *\d+(\.\d+)?(e-\d+)?( (s|ms|min)\b|(?=  ))| *0\.\d{3}\b")
SIZE = re.compile(r" *\d+(\.\d+)? kB")
SESSION = re.compile(r"session-1-[0-9a-f]{8}")
IS_RUN = re.compile(r"acp-conductor (prompt|trace (show|why|stats|diff|replay \S+ --through))\b")
"""Those that end by themselves, and need nothing that the page does not make."""
DIFFERS = ("--through mended.yaml", "trace diff")
"""Commands with the exit code 1: there is a difference."""


def without_times(text):
    """The words of each line, without what differs: durations, session ids, sizes with the
    directory's name in them."""
    lines = SIZE.sub(" ? kB", SESSION.sub("session-1", text)).splitlines()
    return [DURATION.sub(" N", line).split() for line in lines]


def is_run(command):
    return IS_RUN.match(command) is not None and not re.search(r"\||--view|--otel", command)


@pytest.mark.slow
def test_the_page_from_the_symptom_to_the_end(tmp_path):
    compared = 0
    chains = tmp_path / "chains"
    blocks = snippets(PAGE)
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if block.file_name is not None:
            (tmp_path / block.file_name).write_text(block.text)
        for command in filter(is_run, block.commands if block.language == "sh" else ()):
            if "chains/" in command and not chains.exists():  # of the repository, the page says
                chains.symlink_to(ROOT / "chains")
            result = subprocess.run(
                [sys.executable, "-m", "conductor", *shlex.split(command)[1:]],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=60,
            )
            differs = any(each in command for each in DIFFERS)
            assert result.returncode == int(differs), (command, result.stderr)
        if block.language == "sh" and following is not None and is_shown(block, following):
            shown = re.split(r"^…\n", following.text, flags=re.MULTILINE)[0]
            expected = without_times(shown)
            assert without_times(result.stdout)[: len(expected)] == expected
            if following.text == shown:
                assert len(result.stdout.splitlines()) == len(expected)
            compared += 1

    assert compared == 7


def is_shown(block, following):
    """Whether the block that follows is the output of the last command."""
    return following.language == "" and is_run(block.commands[-1])


def test_the_chain_of_the_walk_is_that_of_the_examples():
    (shown,) = (each for each in snippets(PAGE) if each.file_name == "ignored_rule.yaml")

    assert yaml.safe_load(shown.text) == yaml.safe_load(
        (ROOT / "chains" / "ignored_rule.yaml").read_text()
    )
