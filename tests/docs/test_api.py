"""docs/api.md is what docs/make_api.py makes of the docstrings."""

from __future__ import annotations

import importlib
import re
import runpy

import pytest
from support.doc_snippets import ROOT

PAGE = (ROOT / "docs" / "api.md").read_text()
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE))


def test_the_page_is_current():
    make_page = runpy.run_path(str(ROOT / "docs" / "make_api.py"))["make_page"]

    assert make_page() == PAGE, "run `python docs/make_api.py`"


@pytest.mark.parametrize("package", ["conductor.proxy", "conductor.testing"])
def test_every_public_name_has_a_signature_and_a_text(package):
    names = set(importlib.import_module(package).__all__)
    bare = [name for name in names if not re.search(r"```\n\n\S", SECTIONS.get(name, ""))]

    assert bare == []


def test_the_fixtures_of_pytest_are_there():
    assert {"acp_chain", "virtual_clock"} <= set(SECTIONS)
