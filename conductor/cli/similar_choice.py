"""A choice of names that suggests the one that was probably meant."""

from __future__ import annotations

import difflib
from typing import Any

import click

__all__ = ["SimilarChoice"]


class SimilarChoice(click.Choice[str]):
    """As `click.Choice`; the error for an unknown name ends with a similar one."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        message = super().get_invalid_choice_message(value, ctx)
        near = difflib.get_close_matches(str(value).lower(), self.choices, n=1)
        return f"{message} Did you mean {near[0]!r}?" if near else message
