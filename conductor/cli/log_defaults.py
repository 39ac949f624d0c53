"""Log defaults of interactive commands: the stderr of components, and errors that the command
prints itself, are only logged if the user chose a level."""

from __future__ import annotations

import click
from click.core import ParameterSource

__all__ = ["omit_component_stderr"]


def omit_component_stderr(ctx: click.Context) -> None:
    """Reduce the log, unless the user chose a level."""
    group = ctx.parent
    if group is None:
        return
    if group.get_parameter_source("level") is ParameterSource.DEFAULT:
        from conductor.log import configure

        level, as_json = group.params["level"], group.params["log_json"]
        configure(level, as_json=as_json, brief=True)
