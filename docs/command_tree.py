"""The commands of the command line and their help, for the man page and the site."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

PROGRAM = "acp-conductor"


def commands() -> Iterator[tuple[click.Command, click.Context, int]]:
    """Each command before those below it, with its level: 0 for the program itself."""
    from conductor.cli.command_group import acp_conductor

    yield from _walk(acp_conductor, click.Context(acp_conductor, info_name=PROGRAM), 0)


def _walk(
    command: click.Command, context: click.Context, level: int
) -> Iterator[tuple[click.Command, click.Context, int]]:
    yield command, context, level
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            below = click.Context(inner, parent=context, info_name=name)
            yield from _walk(inner, below, level + 1)


def usage(command: click.Command, context: click.Context) -> str:
    return " ".join([context.command_path, *command.collect_usage_pieces(context)])


def options(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    """Options and their texts, without `--help`; also those that the first help leaves out."""
    parameters = command.get_params(context)
    for parameter in parameters:
        if isinstance(parameter, click.Option) and parameter.help:
            parameter.hidden = False
    records = [parameter.get_help_record(context) for parameter in parameters]
    return [each for each in records if each is not None and "--help" not in each[0]]


def paragraphs(command: click.Command) -> Iterator[tuple[bool, list[str]]]:
    """Paragraphs of the help; True for examples (`\\b`), which keep their lines."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        lines = paragraph.splitlines()
        is_example = paragraph.startswith("\b")
        yield is_example, lines[1:] if is_example else lines
