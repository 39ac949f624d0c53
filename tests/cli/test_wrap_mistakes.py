"""Mistakes in the chain of `wrap` when the agent runs alone."""

from __future__ import annotations

import pytest

from conductor.cli.wrapped_chain import warn_of_mistakes


@pytest.mark.parametrize(
    ("uses", "said"),
    [
        (["usage", "contxt"], "called 'contxt'; did you mean 'context'?"),
        (["./nothing.py:Plugin"], "no such file: "),
        (["context:{files: [a}"], "--use context:1:11: error"),
    ],
)
def test_mistakes_in_use_are_named(uses, said, capsys):
    warn_of_mistakes(None, uses, ["agent"])

    assert said in capsys.readouterr().err


def test_mistakes_of_a_chain_file_are_printed(tmp_path, capsys):
    (tmp_path / "chain.yaml").write_text("version: 1\nproxis: []\n")

    warn_of_mistakes(str(tmp_path / "chain.yaml"), [], ["agent"])

    said = capsys.readouterr().err
    assert "chain.yaml:2:1: error: " in said
    assert "its chain file has mistakes" in said


def test_without_mistakes_nothing_is_said(tmp_path, capsys):
    (tmp_path / "chain.yaml").write_text("version: 1\nproxies: [{use: usage}, {run: [x]}]\n")

    warn_of_mistakes(str(tmp_path / "chain.yaml"), [], ["agent"])
    warn_of_mistakes(None, ["usage"], ["agent"])

    assert capsys.readouterr().err == ""
