"""Makes the man page from the help of the commands: `python docs/make_man.py`.

One page, `docs/man/acp-conductor.1`, with all commands. The package installs it below `share/man`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from conductor import __version__
from conductor.cli.command_group import acp_conductor

PAGE = Path(__file__).parent / "man" / "acp-conductor.1"


def make_page() -> str:
    """The page in roff (man(7))."""
    context = click.Context(acp_conductor, info_name="acp-conductor")
    return "\n".join(
        [
            f'.TH ACP-CONDUCTOR 1 "" "acp-conductor {__version__}"',
            ".SH NAME",
            f"acp\\-conductor \\- {_text('extend any coding agent from any editor')}",
            ".SH SYNOPSIS",
            ".B acp\\-conductor",
            "[\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]",
            ".SH DESCRIPTION",
            *_prose(acp_conductor.help),
            ".SH OPTIONS",
            *_options(acp_conductor, context),
            ".SH COMMANDS",
            *_commands(acp_conductor, context),
            ".SH EXIT STATUS",
            *_row("0", "ended without failure"),
            *_row("1", "failed while running"),
            *_row("2", "wrong usage, or a mistake in a chain file"),
            *_row("3", "did not start"),
            *_row("130, 143", "ended by a signal"),
            ".SH FILES",
            "The documentation is in docs/ of the source; \\fBacp\\-conductor COMMAND --help\\fR",
            "prints the help of one command.",
            "",
        ]
    )


def _commands(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, parent=context, info_name=name)
        usage = " ".join(command.collect_usage_pieces(inner))
        yield f".SS {_text(f'{inner.command_path} {usage}')}"
        yield from _prose(command.help)
        yield from _options(command, inner)
        if isinstance(command, click.Group):
            yield from _commands(command, inner)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record and record[1] and "--help" not in record[0]:
            yield from _row(*record)


def _row(term: str, text: str) -> Iterator[str]:
    yield from (".TP", f"\\fB{_text(term)}\\fR", _text(" ".join(text.split())))


def _prose(help: str | None) -> Iterator[str]:
    """Paragraphs; those that begin with `\\b` keep their lines."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(help or "")):
        yield ".PP"
        if paragraph.startswith("\b"):
            yield from (".nf", *map(_text, paragraph.splitlines()[1:]), ".fi")
        else:
            yield _text(" ".join(paragraph.split()))


def _text(text: str) -> str:
    """Text without the meaning that roff gives to backslashes, hyphens, quotes and leading dots."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    escaped = re.sub(r"[^\x00-\x7f]", lambda found: f"\\[u{ord(found[0]):04X}]", escaped)
    return "\\&" + escaped if escaped.startswith(".") else escaped


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(make_page())
