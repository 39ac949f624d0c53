"""Log defaults of interactive commands: text format; the stderr of components, and errors that the
command prints itself, are logged only if the user chose a level."""

from __future__ import annotations

import click
from click.core import ParameterSource

__all__ = ["log_for_people"]


def log_for_people(ctx: click.Context, *, prints_errors: bool = True) -> None:
    """Log text, unless the user chose JSON; reduce the log, unless the user chose a level.

    A command that does not print the errors of a chain itself leaves out only starts and ends.
    """
    group = ctx.find_root()
    if "log_format" not in group.params:  # the command is run alone
        return
    from conductor.log import configure

    as_json = group.params["log_format"] == "json"
    is_reduced = group.get_parameter_source("level") is ParameterSource.DEFAULT
    configure(
        group.params["level"],
        as_json=as_json,
        brief=is_reduced and prints_errors,
        lifecycle=not is_reduced,
    )
