"""Makes the man page from the help of the commands: `python docs/make_man.py`.

One page, `docs/man/acp-conductor.1`, with all commands. The package installs it below `share/man`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from conductor import __version__

sys.path.insert(0, str(Path(__file__).parent))
import command_tree

PAGE = Path(__file__).parent / "man" / "acp-conductor.1"


def make_page() -> str:
    """The page in roff (man(7))."""
    return "\n".join(
        [
            f'.TH ACP-CONDUCTOR 1 "" "acp-conductor {__version__}"',
            ".SH NAME",
            f"acp\\-conductor \\- {_text('extend any coding agent from any editor')}",
            ".SH SYNOPSIS",
            ".B acp\\-conductor",
            "[\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]",
            ".SH DESCRIPTION",
            *(line for each in command_tree.commands() for line in _command(*each)),
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


def _command(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    if level:
        yield f".SS {_text(command_tree.usage(command, context))}"
    yield from _prose(command)
    if not level:
        yield ".SH OPTIONS"
    for option, text in command_tree.options(command, context):
        if text:
            yield from _row(option, text)
    if not level:
        yield ".SH COMMANDS"


def _row(term: str, text: str) -> Iterator[str]:
    yield from (".TP", f"\\fB{_text(term)}\\fR", _text(" ".join(text.split())))


def _prose(command: click.Command) -> Iterator[str]:
    for is_example, lines in command_tree.paragraphs(command):
        yield ".PP"
        if is_example:
            yield from (".nf", *map(_text, lines), ".fi")
        else:
            yield _text(" ".join(" ".join(lines).split()))


def _text(text: str) -> str:
    """Text without the meaning that roff gives to backslashes, hyphens, quotes and leading dots."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    escaped = re.sub(r"[^\x00-\x7f]", lambda found: f"\\[u{ord(found[0]):04X}]", escaped)
    return "\\&" + escaped if escaped.startswith(".") else escaped


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(make_page())
