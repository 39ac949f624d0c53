"""Components as arguments: each is a command with its environment."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from conductor.chainfile.model import ComponentSpec
from conductor.chainfile.paths import command_name, untaken_name
from conductor.json_values import decode_value

__all__ = ["absolute_program", "parse_component_arguments", "split_component"]

_FORM = '{"command": "…", "args": ["…"], "env": {"NAME": "…"}}'


def parse_component_arguments(words: Sequence[str]) -> tuple[ComponentSpec, ...]:
    """One component per argument, with unique names; the second `uvx` is `uvx-2`.

    Raises `click.UsageError`.
    """
    try:
        return tuple(_parse(words))
    except ValueError as exc:
        import click

        raise click.UsageError(str(exc)) from exc


def split_component(word: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """The argv and the added environment variables of a component.

    The syntax is that of the Rust conductor: words as split by a shell, preceded by NAME=value for
    the environment (no shell is run), or a JSON object. Raises `ValueError` with a message for the
    user.
    """
    argv, env = _from_json(word) if word.lstrip().startswith("{") else _from_shell(word)
    return absolute_program(argv), env


def absolute_program(argv: Sequence[str]) -> tuple[str, ...]:
    """The argv with an absolute path to its program; a name alone is looked up in PATH later."""
    program, *rest = argv
    if os.path.dirname(program):
        program = os.path.abspath(os.path.expanduser(program))
    return (program, *rest)


def _parse(words: Sequence[str]) -> Iterator[ComponentSpec]:
    taken: set[str] = set()
    for argv, env in map(split_component, words):
        yield ComponentSpec(name=untaken_name(command_name(argv), taken), run=argv, env=env)


def _from_shell(word: str) -> tuple[list[str], dict[str, str]]:
    try:
        parts = shlex.split(word)
    except ValueError as exc:
        raise ValueError(f"cannot split {word!r} into words: {exc}") from exc
    env: dict[str, str] = {}
    while parts and _is_assignment(parts[0]):
        name, _, value = parts.pop(0).partition("=")
        env[name] = value
    if not parts:
        raise ValueError(f"{word!r} names no program")
    program = parts[0]
    if program.endswith((".yaml", ".yml")) and not os.access(program, os.X_OK):
        start = f"acp-conductor run {program}"
        raise ValueError(f"{program} is no program; `{start}` starts a chain file")
    return parts, env


def _is_assignment(part: str) -> bool:
    name, equals, _ = part.partition("=")
    return bool(equals) and name.isascii() and name.isidentifier()


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    command: Annotated[str, msgspec.Meta(min_length=1)]
    args: list[str] = []
    env: dict[str, str] = {}


def _from_json(word: str) -> tuple[list[str], dict[str, str]]:
    try:
        written = decode_value(word.encode(), type=_Written)
    except msgspec.DecodeError as exc:
        raise ValueError(f"{word!r} has the wrong form ({exc}); expected {_FORM}") from exc
    return [written.command, *written.args], written.env
