"""The codes of errors are written once, in `conductor.error_codes`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from conductor import error_codes

ROOT = Path(__file__).parent.parent
CODES = {getattr(error_codes, name) for name in error_codes.__all__}


def numbers(source: str) -> list[int]:
    """The codes that stand as numbers in Python source."""
    return [
        -node.operand.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
        and -node.operand.value in CODES
    ]


@pytest.mark.parametrize("directory", ["conductor", "proxies", "bridges", "docs/examples"])
def test_a_code_is_a_name_elsewhere(directory):
    found = {
        f"{path.relative_to(ROOT)}: {number}"
        for path in (ROOT / directory).rglob("*.py")
        if path != Path(error_codes.__file__)
        for source in [path.read_text()]
        if re.search(r"32_?\d{3}", source)  # parsing all modules takes seconds
        for number in numbers(source)
    }

    assert found == set()
