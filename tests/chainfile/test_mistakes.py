# ruff: noqa: E501 - what is printed is as wide as it is
"""What is printed about chain files with mistakes.

In `mistakes/*.txt`: below `== TITLE` a chain file, below `-- NAME` one that it nests, and below
`->` what is printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from conductor.chainfile import load
from conductor.errors import ChainFileError

Problems: TypeAlias = Callable[..., str]


def cases() -> Iterator[Any]:
    for path in sorted((Path(__file__).parent / "mistakes").iterdir()):
        for case in re.split(r"^== ", path.read_text("utf-8"), flags=re.MULTILINE)[1:]:
            written, printed = case.split("->\n")
            head, *nested = re.split(r"^-- ", written, flags=re.MULTILINE)
            title, text = head.split("\n", 1)
            files = dict(each.split("\n", 1) for each in nested)
            yield pytest.param(text, files, printed, id=title)


@pytest.mark.parametrize(("text", "files", "printed"), list(cases()))
def test_mistake(diagnostics: Problems, text: str, files: dict[str, str], printed: str) -> None:
    assert diagnostics(text, files=files).strip("\n") == printed.strip("\n")


def test_the_error_of_an_empty_file_shows_how_to_begin(diagnostics: Problems) -> None:
    assert (
        diagnostics("")
        == """
chain.yaml:1:1: error: the file is empty
   |
   | ^
help: a chain file begins with `version: 1`
"""
    )


def test_a_proxy_in_python_is_not_taken_for_a_chain_file(tmp_path: Path) -> None:
    (tmp_path / "today.py").write_text("import attrs\n\nclass Today:\n    pass\n")

    with pytest.raises(ChainFileError) as caught:
        load(tmp_path / "today.py")

    assert "help: a chain file is YAML; `acp-conductor try FILE` runs" in str(caught.value)


def test_a_tab_as_indentation_asks_for_spaces(diagnostics: Problems) -> None:
    assert (
        diagnostics("version: 1\nagent:\n\trun: [agent]\n")
        == "\nchain.yaml:3:1: error: a tab cannot indent YAML\n   | \trun: [agent]\n   | ^\nhelp: use spaces\n"
    )


def test_a_control_character_is_named_and_not_printed(diagnostics: Problems) -> None:
    assert (
        diagnostics("version: 1\nname: a\x1b[31mb\n")
        == """
chain.yaml:2:8: error: the character U+001B is not allowed in YAML
   | name: a␚[31mb
   |        ^
"""
    )


def test_a_file_that_is_not_utf_8_is_shown_at_the_byte(diagnostics: Problems) -> None:
    assert (
        diagnostics(b"version: 1\nname: caf\xe9\nagent: {run: [a]}\n")
        == """
chain.yaml:2:10: error: the byte 0xe9 is not UTF-8
   | name: caf�
   |          ^
help: save the file as UTF-8
"""
    )


def test_the_sixty_fifth_proxy_is_refused_nested_ones_included(diagnostics: Problems) -> None:
    assert (
        diagnostics(
            """\
        version: 1
        proxies:
        - chain: many.yaml
        - use: one
        - use: more
        agent:
          run: [agent]
        """,
            files={"many.yaml": "version: 1\nproxies: [" + ", ".join(["{use: x}"] * 63) + "]\n"},
        )
        == """
chain.yaml:5:3: error: a chain has at most 64 proxies, those of nested chains included
   | - use: more
   |   ^^^^^^^^^
"""
    )


def test_chains_nest_sixteen_deep_and_no_deeper(diagnostics: Problems) -> None:
    assert (
        diagnostics(
            """\
        version: 1
        proxies:
        - chain: c1.yaml
        """,
            files={
                f"c{depth}.yaml": f"version: 1\nproxies:\n- chain: c{depth + 1}.yaml\n"
                for depth in range(1, 17)
            },
        )
        == """
c15.yaml:3:10: error: chains nest more than 16 deep
   | - chain: c16.yaml
   |          ^^^^^^^^
"""
    )
