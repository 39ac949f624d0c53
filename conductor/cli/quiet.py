"""For commands whose stderr is for people: what components write there is not logged unasked."""

from __future__ import annotations

import click
from click.core import ParameterSource

__all__ = ["log_less"]


def log_less(ctx: click.Context) -> None:
    """Log warnings and errors only, unless the user chose a level."""
    group = ctx.parent
    if group is None:
        return
    if group.get_parameter_source("level") is ParameterSource.DEFAULT:
        from conductor.log import configure

        configure("warning", as_json=group.params["log_json"])
