"""Files and modules that documentation, docstrings and comments name exist."""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ("conductor", "proxies", "bridges", "tests")
# A path below the root or below conductor/, or, in a page, the name of a test file alone.
FILE = re.compile(r"(?<![\w./<*-])((?:[\w-]+/)*[\w*-]+\.py)(?:::(\w+))?(?![\w/:])")
MODULE = re.compile(r"(?<![\w./-])((?:conductor|proxies|bridges)(?:\.[A-Za-z_]\w*)+)")
EXAMPLES = {
    # written by the reader, by `new proxy`, or to be found in another project
    *("approve.py", "context.py", "counter.py", "my_proxy.py", "notes.py", "test_context.py"),
    *("path.py", "file.py", "tools.py", "turns.py", "conftest.py"),
}
ELSEWHERE = {"Proxy.builder"}  # of the Rust SDK


@cache
def tracked() -> tuple[str, ...]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if found.returncode:
        return tuple(str(path.relative_to(ROOT)) for path in ROOT.glob("*/**/*.py"))
    return tuple(path for path in found.stdout.splitlines() if (ROOT / path).exists())


def pages() -> list[str]:
    return ["README.md", "CONTRIBUTING.md", *(p for p in tracked() if re.match(r"docs/\w+\.md", p))]


def modules() -> list[str]:
    return [p for p in tracked() if p.endswith(".py") and p.startswith(SOURCES)]


@cache
def text_of(path: Path) -> str:
    return path.read_text()


def prose(path: str) -> Iterator[tuple[int, str]]:
    """Line number and text of every comment and docstring of a module."""
    starts = True
    for token in tokenize.generate_tokens(io.StringIO(text_of(ROOT / path)).readline):
        is_docstring = token.type == tokenize.STRING and starts and '"""' in token.string[:4]
        if token.type == tokenize.COMMENT or is_docstring:
            yield token.start[0], token.string
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            starts = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


@cache
def files_of(name: str) -> list[str]:
    """The files that a path or a name stands for."""
    return [path for path in tracked() if fnmatch(f"/{path}", f"*/{name}")]


def missing_files(text: str, *, names_alone: bool) -> Iterator[str]:
    for name, test in FILE.findall(text):
        if name in EXAMPLES or ("/" not in name and not names_alone):
            continue
        found = files_of(name)
        is_there = test == "" or any(f"def {test}" in text_of(ROOT / f) for f in found)
        if not found or not is_there:
            yield f"{name}::{test}" if test else name


def missing_modules(text: str) -> Iterator[str]:
    """Dotted names of which no module exists, or whose module does not have the next name."""
    for name in MODULE.findall(text):
        source, rest = ROOT, name.split(".")
        while rest and (source / rest[0]).is_dir():
            source /= rest.pop(0)
        if rest and (source / f"{rest[0]}.py").exists():
            source /= f"{rest.pop(0)}.py"
        else:
            source /= "__init__.py"
        if rest and not re.search(rf"\b{rest[0]}\b", text_of(source)):
            yield name


@pytest.mark.parametrize("page", pages())
def test_a_page_names_files_that_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    saved_by_reader = set(re.findall(r"^# ([\w./-]+\.py)$", text, re.MULTILINE))
    missing = {*missing_files(text, names_alone=True)} - saved_by_reader
    assert missing == set()


def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub makes them: repeated ones are numbered."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    made = [re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in headings]
    repeated = {f"{each}-{made[:place].count(each)}" for place, each in enumerate(made)}
    return {*made, *repeated}


@pytest.mark.parametrize("page", pages())
def test_a_link_to_a_page_has_a_target(page: str) -> None:
    wrong = []
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", (ROOT / page).read_text()):
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    assert wrong == []


def test_a_row_of_contributing_names_what_is_in_its_files() -> None:
    rows = [row for row in (ROOT / "CONTRIBUTING.md").read_text().splitlines() if row[:1] == "|"]
    wrong = []
    for row in rows:
        files = [path for name, _ in FILE.findall(row) for path in files_of(name)]
        text = "".join((ROOT / path).read_text() for path in files)
        for span in re.findall(r"`(\w+(?:\.\w+)?)`", row):
            last = span.rpartition(".")[2]
            if files and last not in ("py", "toml") and not re.search(rf"\b{last}\b", text):
                wrong.append(f"{span} in {files}")
    assert wrong == []


def missing(text: str) -> list[str]:
    return [*missing_files(text, names_alone=False), *missing_modules(text)]


def test_docstrings_and_comments_name_files_and_modules_that_exist() -> None:
    wrong = [
        f"{path}:{line}: {name}"
        for path in modules()
        if missing(text_of(ROOT / path))  # else it takes no time to find its comments
        for line, text in prose(path)
        for name in missing(text)
    ]
    assert wrong == []


@cache
def classes() -> dict[str, list[str]]:
    """The texts of the top-level classes of each name."""
    found: dict[str, list[str]] = {}
    for path in modules():
        for text in text_of(ROOT / path).split("\n\n\n"):
            if match := re.search(r"^class (\w+)", text, re.MULTILINE):
                found.setdefault(match[1], []).append(text[match.start() :])
    return found


def has_member(name: str, member: str) -> bool:
    """Whether a class of this name, or one of its bases, has the word in its text."""
    texts, known = list(classes()[name]), {name}
    for text in texts:  # grows
        if re.search(rf"\b{member}\b", text):
            return True
        bases = re.match(r"class \w+\(([^)]*)\)", text)
        for base in re.findall(r"\w+", bases[1]) if bases else ():
            if base not in known:
                known.add(base)
                texts += classes().get(base, [])
    return False


def missing_members(text: str) -> list[str]:
    """`Class.member` in backquotes, of a class of the tree that has no such member."""
    named = re.findall(r"`(([A-Z]\w+)\.(\w+))", text)
    return [
        name
        for name, of, member in named
        if of in classes() and name not in ELSEWHERE and not has_member(of, member)
    ]


def test_docstrings_and_comments_name_members_that_exist() -> None:
    wrong = [
        f"{path}:{line}: {name}"
        for path in modules()
        if not path.startswith("conductor/schema/v")  # generated: members of the schema
        and missing_members(text_of(ROOT / path))
        for line, text in prose(path)
        for name in missing_members(text)
    ]
    assert wrong == []


def test_members_are_found_in_a_class_and_its_bases() -> None:
    text = (
        "`Link.disconnect`, `Link.backlog()`, `PluginPort.lane`, `Link.nothing`, `Unknown.nothing`"
    )
    assert missing_members(text) == ["Link.nothing"]


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("`conductor.jsonrpc.codec.decode_message`, `conductor.errors`", []),
        ("conductor.jsonrpc.nowhere, conductor.errors.Nothing", "all"),
        ("conductor/errors.py, `jsonrpc/codec.py`, tests/cli/test_*.py", []),
        ("conductor/mistakes.py `jsonrpc/nowhere.py`", "all"),
    ],
)
def test_missing_names_are_found(text: str, missing: list[str] | str) -> None:
    found = [*missing_files(text, names_alone=True), *missing_modules(text)]
    assert found == (re.findall(r"[\w./]+", text.replace(",", "")) if missing == "all" else missing)
