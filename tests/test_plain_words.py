"""Docstrings, comments and documentation avoid the words that make a technical sentence a riddle.

"Whoever sends it" is the peer, the client or the caller: the name says more in less.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("conductor", "proxies", "bridges", "tests")
REFUSED = re.compile(
    r"\b(whoever|whomever|whatever|whichever|wherever|whose|somebody|nobody|anybody|everybody"
    r"|of ours|at a glance)\b",
    re.IGNORECASE,
)
REFUSED_IN_SOURCE = re.compile(
    r"\b(we|us|ours?|strangers?|wants|to be had|all the same|for want of|in vain"
    r"|(is|are|was|were|be|been) told)\b"
    r"|(?<!there )\b(is|are|was|were) no (?!longer|more|such)",
    re.IGNORECASE,
)
"""Dialect that tests may still have: the reader or the program as an actor, old idioms, and "is no
object" for "is not an object"."""
ELLIPTICAL = re.compile(r'"""(what|who|which|that|those|of|as)\b', re.IGNORECASE)
"""Beginnings of a docstring in place of a noun: "Of the component." instead of "Name of the
component."."""
ALLOWED = {
    "conductor/schema/v1.py",  # generated: the words of the official schema
    "conductor/schema/v2.py",
    "tests/test_plain_words.py",  # quotes them
}


def prose(source: str) -> Iterator[tuple[int, str]]:
    """The comments and docstrings of a module (attribute docstrings too), with their lines."""
    strings = {
        node.value.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0]
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and line in strings):
            for offset, text in enumerate(token.string.splitlines()):
                yield line + offset, text


def refused(package: str, text: str) -> Iterator[re.Match[str]]:
    for match in REFUSED.finditer(text):
        if (package, match[0].lower()) != (
            "tests",
            "whose",
        ):  # "an agent whose prompts are commands"
            yield match
    if package != "tests":
        yield from REFUSED_IN_SOURCE.finditer(text)


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_and_comments_are_in_plain_words(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match[0]!r} in: {text.strip()}"
        for path in sorted((ROOT / package).rglob("*.py"))
        if str(path.relative_to(ROOT)) not in ALLOWED
        for source in [path.read_text()]
        if any(refused(package, source))  # else it takes no time to find its comments
        for line, text in prose(source)
        for match in refused(package, text)
    ]

    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES[:3])
def test_docstrings_begin_with_a_noun_or_a_verb(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {source[match.start() :].splitlines()[0]}"
        for path in sorted((ROOT / package).rglob("*.py"))
        if str(path.relative_to(ROOT)) not in ALLOWED
        for source in [path.read_text()]
        for match in ELLIPTICAL.finditer(source)
    ]

    assert not found, "\n" + "\n".join(found)


def test_the_documentation_is_in_plain_words() -> None:
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r} in: {line}"
        for path in [*pages, *sorted((ROOT / "docs").glob("*.md"))]
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for match in refused("docs", line)
        if path.name != "api.md"  # generated from docstrings
        and match[0].lower() != "whose"  # "an agent whose sessions share their servers"
    ]

    assert not found, "\n" + "\n".join(found)


def test_the_check_finds_comments_and_docstrings_only() -> None:
    source = (
        '"""Whoever reads it."""\nx = "nobody"  # of ours\n'
        '\n\nclass A:\n    y = 1\n    """whose"""\n'
    )

    assert [line for line, text in prose(source) if REFUSED.search(text)] == [1, 2, 7]
