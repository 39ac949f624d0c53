"""Command-line arguments to component specs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from conductor.chainfile.model import ComponentSpec
from conductor.chainfile.naming import command_name
from conductor.cli.component_argument import split_component

__all__ = ["parse_component", "parse_component_arguments", "parse_components"]


def parse_component_arguments(words: Sequence[str]) -> tuple[ComponentSpec, ...]:
    """`parse_components` for a click command: raises `click.UsageError`."""
    try:
        return parse_components(words)
    except ValueError as exc:
        import click

        raise click.UsageError(str(exc)) from exc


def parse_components(words: Sequence[str]) -> tuple[ComponentSpec, ...]:
    """One component per argument, with unique names; the second `uvx` is `uvx-2`.

    Raises `ValueError` with a message for the user.
    """
    components: list[ComponentSpec] = []
    taken: dict[str, int] = {}
    for word in words:
        component = parse_component(word)
        taken[component.name] = count = taken.get(component.name, 0) + 1
        if count > 1:
            component = msgspec.structs.replace(component, name=f"{component.name}-{count}")
        components.append(component)
    return tuple(components)


def parse_component(word: str) -> ComponentSpec:
    """One component, in the syntax of `split_component`; named after its command.

    Raises `ValueError` with a message for the user.
    """
    argv, env = split_component(word)
    return ComponentSpec(name=command_name(argv), run=argv, env=env)
