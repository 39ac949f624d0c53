"""The modules of docs/api.md are the public ones: what they have is described, and is enough."""

from __future__ import annotations

import ast

import pytest
from support.doc_snippets import ROOT
from support.public_api import MODULES, public_names

LISTED = {(module, name) for module in MODULES for name, _ in public_names(module)}


@pytest.mark.parametrize("module", MODULES)
def test_every_public_class_and_function_has_a_text(module):
    bare = [
        name
        for name, found in public_names(module)
        if (found.is_class or found.is_function) and not found.has_docstring
    ]

    assert bare == []


def imported(source):
    """The names of `conductor` that a module imports, with their modules."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "conductor":
            yield from ((node.module, alias.name) for alias in node.names)
        if isinstance(node, ast.Import):
            yield from ((a.name, "") for a in node.names if a.name.split(".")[0] == "conductor")


@pytest.mark.parametrize("directory", ["proxies", "docs/examples"])
def test_proxies_import_only_public_names(directory):
    unlisted = {
        f"{path.name}: {module}.{name}"
        for path in (ROOT / directory).rglob("*.py")
        for module, name in imported(path.read_text())
        if (module, name) not in LISTED
    }

    assert unlisted == set()
