"""Mistakes of the command line, as click tells them: the usage, the mistake, exit code 2."""

from __future__ import annotations

from collections.abc import Sequence

import click

from conductor.chainfile.model import Component
from conductor.cli.arguments import parse_components

__all__ = ["components_of"]


def components_of(words: Sequence[str]) -> tuple[Component, ...]:
    """The components that the command line names. Raises `click.UsageError`."""
    try:
        return parse_components(words)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
