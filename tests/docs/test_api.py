"""docs/api.md is what docs/make_api.py makes of the docstrings."""

from __future__ import annotations

import ast
import importlib
import re
import runpy
from functools import cache

import pytest
from support.doc_snippets import ROOT

PAGE = (ROOT / "docs" / "api.md").read_text()
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE))


def test_the_page_is_current():
    make_page = runpy.run_path(str(ROOT / "docs" / "make_api.py"))["make_page"]

    assert make_page() == PAGE, "run `python docs/make_api.py`"


@pytest.mark.parametrize(
    "package",
    [
        "conductor",
        "conductor.error_codes",
        "conductor.proxy",
        "conductor.proxy.agent_questions",
        "conductor.proxy.tool_names",
        "conductor.testing",
        "conductor.testing.updates",
    ],
)
def test_every_public_name_has_a_signature_and_a_text(package):
    names = set(importlib.import_module(package).__all__)
    bare = [name for name in names if not re.search(r"```\n\n\S", SECTIONS.get(name, ""))]

    assert bare == []


def test_the_fixtures_of_pytest_are_there():
    assert {"acp_chain", "virtual_clock"} <= set(SECTIONS)


@cache
def listed(page=PAGE):
    """The names on the page, with their modules."""
    modules = re.findall(r"^## (conductor\S+)\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    return {
        (module, name) for module, text in modules for name in re.findall(r"^### (\w+)", text, re.M)
    }


def imported(source):
    """The names of `conductor` that a module imports, with their modules."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "conductor":
            yield from ((node.module, alias.name) for alias in node.names)
        if isinstance(node, ast.Import):
            yield from ((a.name, "") for a in node.names if a.name.split(".")[0] == "conductor")


@pytest.mark.parametrize("directory", ["proxies", "docs/examples"])
def test_proxies_import_only_names_of_the_page(directory):
    unlisted = {
        f"{path.name}: {module}.{name}"
        for path in (ROOT / directory).rglob("*.py")
        for module, name in imported(path.read_text())
        if (module, name) not in listed()
    }

    assert unlisted == set()


def test_an_import_of_a_module_or_of_another_name_is_found():
    source = "import conductor.log\ndef f():\n    from conductor.proxy import Proxy, base\n"

    found = set(imported(source)) - listed()

    assert found == {("conductor.log", ""), ("conductor.proxy", "base")}
