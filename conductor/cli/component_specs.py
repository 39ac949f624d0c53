"""Components as arguments: each is a command with its environment."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from conductor.chainfile.model import ComponentSpec
from conductor.chainfile.paths import command_name

__all__ = ["absolute_program", "parse_component_arguments", "split_component"]

_FORM = '{"command": "…", "args": ["…"], "env": {"NAME": "…"}}'


def parse_component_arguments(words: Sequence[str]) -> tuple[ComponentSpec, ...]:
    """One component per argument, with unique names; the second `uvx` is `uvx-2`.

    Raises `click.UsageError`.
    """
    try:
        return _parse(words)
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


def _parse(words: Sequence[str]) -> tuple[ComponentSpec, ...]:
    components: list[ComponentSpec] = []
    taken: dict[str, int] = {}
    for word in words:
        argv, env = split_component(word)
        component = ComponentSpec(name=command_name(argv), run=argv, env=env)
        taken[component.name] = count = taken.get(component.name, 0) + 1
        if count > 1:
            component = msgspec.structs.replace(component, name=f"{component.name}-{count}")
        components.append(component)
    return tuple(components)


def _from_shell(word: str) -> tuple[list[str], dict[str, str]]:
    parts = _split(word)
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


def _split(word: str) -> list[str]:
    if word.isprintable() and not any(special in word for special in "'\"\\"):
        return word.split()  # like shlex, without its import of 2 ms before a component starts
    import shlex

    try:
        return shlex.split(word)
    except ValueError as exc:
        raise ValueError(f"cannot split {word!r} into words: {exc}") from exc


def _is_assignment(part: str) -> bool:
    name, equals, _ = part.partition("=")
    return bool(equals) and name.isascii() and name.isidentifier()


def _from_json(word: str) -> tuple[list[str], dict[str, str]]:
    import json

    try:
        spec = json.loads(word)
    except (ValueError, RecursionError) as exc:
        raise ValueError(f"{word!r} is not JSON ({exc}); expected {_FORM}") from exc
    command, args, env = spec.get("command"), spec.get("args", []), spec.get("env", {})
    unknown = sorted(spec.keys() - {"command", "args", "env"})
    if unknown:
        raise ValueError(f"{word!r} has an unknown key {unknown[0]!r}; expected {_FORM}")
    texts = isinstance(args, list) and all(isinstance(arg, str) for arg in args)
    pairs = isinstance(env, dict) and all(isinstance(value, str) for value in env.values())
    if not (isinstance(command, str) and command and texts and pairs):
        raise ValueError(f"{word!r} has the wrong form; expected {_FORM}")
    return [command, *args], env
