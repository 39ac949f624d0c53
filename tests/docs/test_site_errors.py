"""The errors page has every exit code, error code, exception class, remedy and text of the code."""

from __future__ import annotations

import ast
import re
import sys

import pytest
from support.doc_snippets import ROOT

from conductor import error_codes, errors
from conductor.chain.start_failure import REMEDIES
from conductor.exit_codes import ExitCode

sys.path.insert(0, str(ROOT / "docs"))

import site_errors

SOURCES = [
    path
    for package in ("conductor", "proxies", "bridges")
    for path in sorted((ROOT / package).rglob("*.py"))
]
EXITS = re.compile(r"(?:sys\.exit|exit_now|os\._exit)\((.*)\)")
RAISED = re.compile(
    r"raise (?:RegistryError|ConfigFileError|SpawnError|AttachmentError|click\.UsageError"
    r"|LocalProtocolError)\(\s*f?\"([^\"{\\]{12,})"
)


MCP_CODES = {-32001}
"""Counted in metrics: a request of MCP timed out."""


@pytest.fixture(scope="module")
def page():
    return site_errors.errors_page()


def without_spaces(text: str) -> str:
    return "".join(text.split())


def test_every_exit_code_of_the_commands_is_on_the_page(page):
    used = {
        int(number)
        for path in SOURCES
        if path.is_relative_to(ROOT / "conductor")
        for expression in EXITS.findall(path.read_text())
        for number in re.findall(r"\b\d+\b(?! \+)", expression)
    }

    assert used - set(ExitCode) - {130} == set()
    assert all(f"\n| {code.value} | " in page for code in ExitCode)


def test_every_error_code_is_on_the_page(page):
    used = {
        -node.operand.value
        for path in SOURCES
        for source in [path.read_text()]
        if "schema" not in path.parts and re.search(r"\b32_?\d{3}\b", source)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
        and 32000 <= node.operand.value < 33000
    }
    named = {getattr(error_codes, name) for name in error_codes.__all__}

    assert used - MCP_CODES == named
    assert all(f"\n| {code} | `" in page for code in named)


def test_every_exception_and_what_clients_get_of_it_is_on_the_page(page):
    for name in errors.__all__:
        if name[0].isupper():
            assert f"\n| `{name}` | " in page
    assert "`component`, `reason`, `command`, `exitStatus`, `stderr`, `place`, `next`" in page


def test_every_remedy_is_on_the_page(page):
    assert all(f"\n| {text} | " in page for text in REMEDIES)
    assert sys.executable not in page


@pytest.mark.parametrize(
    ("message", "help"),
    [
        ("expected a name without `/`", ""),
        ("the store … cannot be used", "XDG_DATA_HOME names another directory"),
        ("the lock file … is unusable", "restore it, or delete it"),
        ("command not found: … (PATH is …)", ""),
    ],
)
def test_texts_are_listed_with_what_to_do(page, message, help):
    rows = [line for line in page.splitlines() if message in line]

    assert rows, message
    assert any(help in row for row in rows)


def test_no_text_of_an_error_is_missing(page):
    shown = without_spaces(page)
    missing = [
        f"{path.relative_to(ROOT)}: {text}"
        for path in SOURCES
        for text in RAISED.findall(path.read_text())
        if without_spaces(text.replace("|", "\\|").replace("<", "&lt;")) not in shown
    ]

    assert missing == []
