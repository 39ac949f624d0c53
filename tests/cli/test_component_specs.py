"""A component on the command line is split as by a shell."""

from __future__ import annotations

import pytest

from conductor.cli.component_specs import split_component


@pytest.mark.parametrize(
    ("word", "argv", "env"),
    [
        ("  agent  --flag # x ", ("agent", "--flag", "#", "x"), {}),
        ("A=1 _b2= agent C=3", ("agent", "C=3"), {"A": "1", "_b2": ""}),
        ("A=x=y agent", ("agent",), {"A": "x=y"}),
        ("Ä=x", ("Ä=x",), {}),
        ("A='1 2' 'my agent' a\\ b", ("my agent", "a b"), {"A": "1 2"}),
        ("agent a\tb\nc", ("agent", "a", "b", "c"), {}),
        ("agent a\N{NO-BREAK SPACE}b", ("agent", "a\N{NO-BREAK SPACE}b"), {}),
    ],
)
def test_a_component_is_written_as_for_a_shell(word, argv, env):
    assert split_component(word) == (argv, env)


@pytest.mark.parametrize("word", ["", "  ", "A=1"])
def test_a_component_needs_a_program(word):
    with pytest.raises(ValueError, match="names no program"):
        split_component(word)


def test_an_unclosed_quote_is_reported():
    with pytest.raises(ValueError, match=r"cannot split .* No closing quotation"):
        split_component("agent 'a")
