"""Components on the command line."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from conductor.chainfile.model import ComponentSpec
from conductor.chainfile.naming import command_name
from conductor.cli.component_argument import split_component

__all__ = ["parse_component", "parse_components"]


def parse_components(words: Sequence[str]) -> tuple[ComponentSpec, ...]:
    """One component per word, with names that are unique. Raises `ValueError`, for people."""
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
    """A component, as `words.split_component` reads it. Raises `ValueError`, for people."""
    argv, env = split_component(word)
    return ComponentSpec(name=command_name(argv), run=argv, env=env)
