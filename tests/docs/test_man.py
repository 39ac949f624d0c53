"""docs/man/acp-conductor.1 is what docs/make_man.py makes of the commands' help."""

from __future__ import annotations

import runpy
import shutil
import subprocess

import pytest
from support.doc_snippets import ROOT

PAGE = ROOT / "docs" / "man" / "acp-conductor.1"


def test_the_page_is_current():
    make_page = runpy.run_path(str(ROOT / "docs" / "make_man.py"))["make_page"]

    assert make_page() == PAGE.read_text(), "run `python docs/make_man.py`"


@pytest.mark.skipif(not shutil.which("groff"), reason="needs groff")
def test_groff_has_nothing_to_object():
    argv = ["groff", "-man", "-ww", "-Tutf8", str(PAGE)]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True)

    assert shown.stderr == ""
    assert "acp-conductor trace show" in shown.stdout
