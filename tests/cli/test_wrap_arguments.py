"""`wrap` starts components before click is imported; so its arguments are split without it."""

from __future__ import annotations

import pytest

from conductor.cli.wrap_arguments import split_wrap_arguments


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--", "agent", "--acp"], (None, (), ("agent", "--acp"))),
        (["agent", "--acp", "--", "x"], (None, (), ("agent", "--acp", "--", "x"))),
        (["--use", "context", "--use=usage", "--", "a"], (None, ("context", "usage"), ("a",))),
        (["--chain", "c.yaml", "a"], ("c.yaml", (), ("a",))),
        (["--chain=c.yaml", "--", "--odd"], ("c.yaml", (), ("--odd",))),
    ],
)
def test_options_end_at_the_agent(words, expected):
    found = split_wrap_arguments(words)

    assert found is not None
    assert (found.chain, found.uses, found.argv) == expected


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--"],
        ["--use", "context"],
        ["--use"],
        ["--trace", "t", "--", "a"],
        ["--chain", "a.yaml", "--chain", "b.yaml", "agent"],
        ["--chain", "a.yaml", "--use", "context", "agent"],
    ],
)
def test_other_options_and_mistakes_are_left_to_click(words):
    assert split_wrap_arguments(words) is None
