"""Unknown names of a choice."""

from __future__ import annotations

import click
import pytest

from conductor.cli.arguments import SimilarChoice

CHOICE = SimilarChoice(["zed", "vscode"], {"code": ("vscode", "zed")})


@pytest.mark.parametrize(
    ("value", "end"),
    [
        ("zedd", "Did you mean 'zed'?"),
        ("Code", "Did you mean 'vscode' or 'zed'?"),
        ("emacs", "one of 'zed', 'vscode'."),
    ],
)
def test_a_similar_name_is_suggested(value, end):
    with pytest.raises(click.BadParameter) as raised:
        CHOICE.convert(value, None, None)

    assert raised.value.message.endswith(end)
    assert CHOICE.convert("zed", None, None) == "zed"
