# ruff: noqa: E501 - what is printed is as wide as it is
"""Diagnostics of invalid YAML."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from conductor.chainfile import load
from conductor.errors import ChainFileError

Problems: TypeAlias = Callable[..., str]


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


def test_the_error_of_a_list_at_the_root_describes_a_chain_file(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        - use: context
        """)
        == """
chain.yaml:1:1: error: a chain file is a mapping of keys to values
   | - use: context
   | ^^^^^^^^^^^^^^
help: the smallest chain file is
      version: 1
      agent:
        run: [my-agent]
"""
    )


def test_bad_syntax_is_shown_where_it_is_and_where_it_began(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        agent: {run: [agent]
        proxies: []
        """)
        == """
chain.yaml:3:1: error: not valid YAML: expected ',' or '}', but got '<scalar>'
   | proxies: []
   | ^
chain.yaml:2:8: note: while parsing a flow mapping
   | agent: {run: [agent]
   |        ^
"""
    )


def test_an_unclosed_quote_is_shown_at_the_end_of_the_file(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        name: "review
        """)
        == """
chain.yaml:2:14: error: not valid YAML: found unexpected end of stream
   | name: "review
   |              ^
chain.yaml:2:7: note: while scanning a quoted scalar
   | name: "review
   |       ^
"""
    )


def test_a_colon_inside_a_plain_value_asks_for_quotes(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        name: a: b
        """)
        == """
chain.yaml:2:8: error: not valid YAML: mapping values are not allowed here
   | name: a: b
   |        ^
help: put a value that contains `: ` in quotes
"""
    )


def test_a_proxy_in_python_is_not_taken_for_a_chain_file(tmp_path: Path) -> None:
    (tmp_path / "today.py").write_text("import attrs\n\nclass Today:\n    pass\n")

    with pytest.raises(ChainFileError) as caught:
        load(tmp_path / "today.py")

    assert "help: a chain file is YAML; `acp-conductor try FILE` runs" in str(caught.value)


def test_a_line_that_is_indented_too_little_names_the_column_of_its_block(
    diagnostics: Problems,
) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
          - use: context
           with: {text: x}
        """)
        == """
chain.yaml:4:4: error: the indentation fits no line above
   |    with: {text: x}
   |    ^
chain.yaml:3:3: note: the block begins here
   |   - use: context
   |   ^
help: begin it in column 5, as the key above
"""
    )
    assert (
        diagnostics("""        version: 1
        agent:
          run: echo
          # only here

         env: {A: b}
        """)
        == """
chain.yaml:6:2: error: the indentation fits no line above
   |  env: {A: b}
   |  ^
chain.yaml:1:1: note: the block begins here
   | version: 1
   | ^
help: begin it in column 3, as the key above, or in column 1, as the keys of the block
"""
    )


def test_a_line_that_is_indented_too_much_names_the_line_before(diagnostics: Problems) -> None:
    assert (
        diagnostics("""        agent:
          run: echo
            env: {A: b}
        """)
        == """
chain.yaml:3:8: error: not valid YAML: mapping values are not allowed here
   |     env: {A: b}
   |        ^
help: begin this line in the same column as the one before, which has a value and can have no keys
"""
    )


def test_a_tab_as_indentation_asks_for_spaces(diagnostics: Problems) -> None:
    assert (
        diagnostics("version: 1\nagent:\n\trun: [agent]\n")
        == "\nchain.yaml:3:1: error: a tab cannot indent YAML\n   | \trun: [agent]\n   | ^\nhelp: use spaces\n"
    )


def test_a_character_that_begins_no_value_asks_for_quotes(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        name: @home
        """)
        == """
chain.yaml:2:7: error: not valid YAML: found character '@' that cannot start any token
   | name: @home
   |       ^
help: put a value that begins with this character in quotes
"""
    )


def test_a_bare_reference_in_a_flow_list_asks_for_quotes(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        agent:
          run: [${AGENT}, --acp]
        """)
        == """
chain.yaml:3:10: error: not valid YAML: expected ',' or ']', but got '{'
   |   run: [${AGENT}, --acp]
   |          ^
chain.yaml:3:8: note: while parsing a flow sequence
   |   run: [${AGENT}, --acp]
   |        ^
help: inside `[ ]` and `{ }`, put a reference in quotes: `"${VAR}"`
"""
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


def test_a_number_too_large_for_a_character_is_no_crash(diagnostics: Problems) -> None:
    assert (
        diagnostics(
            r"""
        version: 1
        name: "\UFFFFFFFF"
        """[1:]
        )
        == r"""
chain.yaml:2:10: error: not valid YAML: a number is too large
   | name: "\UFFFFFFFF"
   |          ^
"""
    )


def test_a_nul_cannot_be_passed_to_a_program(diagnostics: Problems) -> None:
    assert (
        diagnostics(
            r"""
        version: 1
        agent:
          run: [agent, "a\0b"]
        """[1:]
        )
        == r"""
chain.yaml:3:16: error: a NUL or half a character cannot be passed to a program
   |   run: [agent, "a\0b"]
   |                ^^^^^^
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


def test_a_second_document_is_refused_where_it_begins(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        agent: {run: [a]}
        ---
        version: 1
        """)
        == """
chain.yaml:3:1: error: a second YAML document begins here: a chain file is one document
   | ---
   | ^^^
"""
    )


def test_a_repeated_key_points_to_the_first(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        agent:
          run: [a]
          run: [b]
        """)
        == """
chain.yaml:4:3: error: the key `run` is repeated
   |   run: [b]
   |   ^^^
chain.yaml:3:3: note: first given here
   |   run: [a]
   |   ^^^
"""
    )


def test_a_key_that_is_a_list_is_refused(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        agent: {run: [a]}
        ? [x]
        : y
        """)
        == """
chain.yaml:3:3: error: a key is a word, not a list or a mapping
   | ? [x]
   |   ^^^
"""
    )


def test_a_merge_key_is_refused(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - &a {use: context}
        - <<: *a
        """)
        == """
chain.yaml:4:3: error: merge keys are not supported
   | - <<: *a
   |   ^^
help: write the keys out; an alias may stand for a whole value
"""
    )


def test_a_tag_is_refused(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        agent:
          run: [!!python/name:os.system a]
        """)
        == """
chain.yaml:3:9: error: a YAML tag has no meaning in a chain file
   |   run: [!!python/name:os.system a]
   |         ^^^^^^^^^^^^^^^^^^^^^^^^^
"""
    )


def test_a_repeated_anchor_points_to_the_first(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - &a {use: x}
        - &a {use: y}
        """)
        == """
chain.yaml:4:3: error: an anchor is given only once
   | - &a {use: y}
   |   ^
chain.yaml:3:3: note: first given here
   | - &a {use: x}
   |   ^
"""
    )


def test_aliases_that_multiply_are_refused(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        name: x
        proxies:
        - use: a
          with:
            a: &a [x, x, x, x, x, x, x, x, x, x]
            b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]
            c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]
            d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]
            e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]
            f: &f [*e, *e, *e, *e, *e, *e, *e, *e, *e, *e]
            g: &g [*f, *f, *f, *f, *f, *f, *f, *f, *f, *f]
        """)
        == """
chain.yaml:6:21: error: a chain file has at most 10000 values, those that aliases repeat included
   |     a: &a [x, x, x, x, x, x, x, x, x, x]
   |                     ^
"""
    )


def test_an_alias_inside_its_own_value_is_refused(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies: &a [*a]
        """)
        == """
chain.yaml:2:13: error: an alias of this value stands inside it
   | proxies: &a [*a]
   |             ^^^^
"""
    )


def test_nesting_without_end_is_refused(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[
        """)
        == """
chain.yaml:2:59: error: values nest at most 50 deep
   | proxies: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[
   |                                                           ^
"""
    )
