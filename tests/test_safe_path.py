"""Python that the conductor starts does not import from the current directory.

An editor starts it in a project, and a project may have a directory `conductor`.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SAFE = {"-P", "-I", "-IS", "-ISE"}
DEVELOPMENT = {"conductor/schema/generate.py"}


def unsafe_starts(source: str) -> list[int]:
    """Lines of lists and tuples that begin with `sys.executable` and no option for a safe path."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, (ast.List, ast.Tuple)) or len(node.elts) < 2:
            continue
        program, first = map(ast.unparse, node.elts[:2])
        if first == "*sys.orig_argv[1:]":  # as this process was started
            continue
        if program == "sys.executable" and first.strip("'") not in SAFE:
            found.append(node.lineno)
    return found


@pytest.mark.parametrize("directory", ["conductor", "proxies", "bridges"])
def test_python_is_started_with_a_safe_path(directory):
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in (ROOT / directory).rglob("*.py")
        if str(path.relative_to(ROOT)) not in DEVELOPMENT
        for source in [path.read_text()]
        if "sys.executable" in source  # parsing all modules takes seconds
        for line in unsafe_starts(source)
    }

    assert found == set()
