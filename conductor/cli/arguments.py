"""Components on the command line, in the Rust conductor's grammar; chain files by their path."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from typing import Any

import attrs
import click
import msgspec

from conductor.chainfile.model import Component
from conductor.chainfile.naming import command_name

__all__ = ["parse_component", "parse_components"]

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


def parse_components(words: Sequence[str]) -> tuple[Component, ...]:
    """One component per word, with names that are unique. Raises `click.UsageError`."""
    components: list[Component] = []
    taken: dict[str, int] = {}
    for word in words:
        component = parse_component(word)
        taken[component.name] = count = taken.get(component.name, 0) + 1
        if count > 1:
            component = attrs.evolve(component, name=f"{component.name}-{count}")
        components.append(component)
    return tuple(components)


def parse_component(word: str) -> Component:
    """A command as a shell would split it (leading NAME=value become its environment; no shell is
    run), or a JSON object {"command", "args"?, "env"?}."""
    if word.lstrip().startswith("{"):
        return _from_json(word)
    try:
        parts = shlex.split(word)
    except ValueError as exc:
        raise click.UsageError(f"cannot split {word!r} into words: {exc}") from exc
    env: dict[str, str] = {}
    while parts and _ASSIGNMENT.match(parts[0]):
        name, _, value = parts.pop(0).partition("=")
        env[name] = value
    if not parts:
        raise click.UsageError(f"{word!r} names no program")
    return _command(parts, env)


def _from_json(word: str) -> Component:
    class Spec(msgspec.Struct, forbid_unknown_fields=True):
        command: str
        args: list[str] = []
        env: dict[str, str] = {}

    try:
        spec = msgspec.json.decode(word, type=Spec)
    except msgspec.MsgspecError as exc:
        raise click.UsageError(
            f'{word!r}: {exc}; expected {{"command": "…", "args": ["…"], "env": {{"NAME": "…"}}}}'
        ) from exc
    return _command([spec.command, *spec.args], spec.env)


def _command(argv: list[str], env: dict[str, Any]) -> Component:
    program = argv[0]
    if os.path.dirname(program):
        program = os.path.abspath(program)
    return Component(name=command_name(argv), run=(program, *argv[1:]), env=env)
