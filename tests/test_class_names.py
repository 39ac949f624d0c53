"""No two classes of the packages have one name, so that a name can be searched for."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_no_two_public_classes_have_one_name() -> None:
    names = Counter(
        node.name
        for package in ("conductor", "proxies", "bridges")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.parent != ROOT / "conductor/schema"  # both versions of the protocol
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )

    assert {name for name, count in names.items() if count > 1} == set()
