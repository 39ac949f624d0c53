"""A choice of names that suggests the one that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import click

__all__ = ["SimilarChoice"]


class SimilarChoice(click.Choice[str]):
    """`click.Choice` with a suggestion in its error for an unknown name: the most similar choice,
    or those that `meant` lists for it."""

    def __init__(
        self, choices: Iterable[str], meant: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        super().__init__(choices)
        self._meant = meant or {}

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        message = super().get_invalid_choice_message(value, ctx)
        name = str(value).lower()
        near = self._meant.get(name) or difflib.get_close_matches(name, self.choices, n=1)
        return f"{message} Did you mean {' or '.join(map(repr, near))}?" if near else message
