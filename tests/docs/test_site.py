"""The site is built from docs/ without a broken link or anchor."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
from support.doc_snippets import ROOT

pytestmark = [
    pytest.mark.external,
    pytest.mark.skipif(
        not (os.environ.get("CI") or importlib.util.find_spec("mkdocs")),
        reason="needs the extra `docs`",
    ),
]


def test_the_site_is_built_without_a_warning(tmp_path):
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", ".mkdocs.yml"]
    built = subprocess.run(
        [*argv, "-d", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )

    assert built.returncode == 0, built.stderr
    pages = {page.relative_to(tmp_path).as_posix() for page in tmp_path.rglob("*.html")}
    assert {
        "index.html",
        "tutorial.html",
        "reference/commands.html",
        "reference/errors.html",
    } <= pages
    keys = (tmp_path / "reference" / "chain-file.html").read_text()
    assert 'href="components.html"' in keys  # a link from one generated page to another
    commands = (tmp_path / "commands.html").read_text()
    assert "<code>proxy [PROXY]...|FILE</code>" in commands
    events = (tmp_path / "reference" / "log-events.html").read_text()
    assert "chain failed to start" in events
