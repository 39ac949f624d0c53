"""docs/adapters.md has the table of adapters as it is in the code, and chain files their keys."""

from __future__ import annotations

import runpy

import msgspec
from support.doc_snippets import ROOT

from conductor.adapters.table import ADAPTERS
from conductor.chainfile.model import AdaptItem


def test_the_table_is_current():
    make_page = runpy.run_path(str(ROOT / "docs" / "make_adapters.py"))["make_page"]

    assert make_page() == (ROOT / "docs" / "adapters.md").read_text(), (
        "run `python docs/make_adapters.py`"
    )


def test_each_adapter_has_a_key_in_chain_files():
    keys = [field.name for field in msgspec.structs.fields(AdaptItem)]

    assert keys == sorted(row.name for row in ADAPTERS)
