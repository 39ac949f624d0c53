"""Exit codes of a command that did not end by itself."""

from __future__ import annotations

import click
import pytest

from conductor.cli import command_group


def exit_code(monkeypatch, problem):
    """The exit code of a command that raises this."""

    def main(*_, **__):
        raise problem

    monkeypatch.setattr(command_group.acp_conductor, "main", main)
    with pytest.raises(SystemExit) as exit:
        command_group.run_command(["trace", "show", "t.jsonl"])
    return exit.value.code


def of_click(cause):
    """What click makes of Ctrl-C, or of the end of the input."""
    problem = click.Abort()
    problem.__context__ = cause
    return problem


@pytest.mark.parametrize(
    ("problem", "code", "text"),
    [
        (of_click(KeyboardInterrupt()), 130, ""),
        (BaseExceptionGroup("", [BaseExceptionGroup("", [KeyboardInterrupt()])]), 130, ""),
        (of_click(EOFError()), 1, "Aborted!\n"),
    ],
    ids=["click", "trio", "end of the input"],
)
def test_an_interrupted_command_has_an_exit_code_of_its_own(
    problem, code, text, monkeypatch, capsys
):
    assert exit_code(monkeypatch, problem) == code
    assert capsys.readouterr().err == text


def test_another_failure_is_not_hidden_by_ctrl_c(monkeypatch):
    both = BaseExceptionGroup("", [KeyboardInterrupt(), ValueError("a mistake")])

    with pytest.raises(BaseExceptionGroup):
        exit_code(monkeypatch, both)
