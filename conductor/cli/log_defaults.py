"""For commands whose stderr is for people: what components write there, and errors that are shown
anyway, are not logged unasked."""

from __future__ import annotations

import click
from click.core import ParameterSource

__all__ = ["omit_component_stderr"]


def omit_component_stderr(ctx: click.Context) -> None:
    """Log briefly, unless the user chose a level."""
    group = ctx.parent
    if group is None:
        return
    if group.get_parameter_source("level") is ParameterSource.DEFAULT:
        from conductor.log import configure

        level, as_json = group.params["level"], group.params["log_json"]
        configure(level, as_json=as_json, brief=True)
