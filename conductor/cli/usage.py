"""Mistakes on the command line: exit code 2, and an answer for a client that is there.

An editor's settings hold the command line, and most editors show nothing of our stderr. So where
stdin is no terminal and the command serves a client on stdio, the mistake is the answer to
`initialize`, or explained in the chat, as for a chain file with mistakes.
"""

from __future__ import annotations

import difflib
import io
import os
import re
import select
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, NoReturn

import click

from conductor.redaction import redact, register_environment, register_secrets
from conductor.secret_detection import secret_parts

if TYPE_CHECKING:
    from conductor.chainfile.model import ComponentSpec

__all__ = ["fail_usage", "parse_component_arguments", "served_command"]

_SERVED: Final = ("run", "agent", "proxy", "connect")
"""Commands whose stdin and stdout belong to a client."""
_PATIENCE: Final = 3.0
"""Seconds for the first message of a client, where no such command was named: what started us may
be a script with an open pipe."""
_NAMED_VALUE: Final = re.compile(r"([\w.-]+)[\"']?\s*[=:]\s*[\"']?([^\s\"',}]+)")


def parse_component_arguments(words: Sequence[str]) -> tuple[ComponentSpec, ...]:
    """The components that the command line names. Raises `click.UsageError`."""
    from conductor.cli.component_specs import parse_components

    try:
        return parse_components(words)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc


def fail_usage(error: click.UsageError, arguments: Sequence[str], commands: Sequence[str]) -> None:
    """Report a mistake on stderr and to the client, if there is one; returns if there is none."""
    register_environment(os.environ)
    register_secrets(_secrets(arguments))
    shown = io.StringIO()
    error.show(file=shown)
    print(redact(shown.getvalue()), end="", file=sys.stderr, flush=True)
    command = served_command(arguments, commands)
    if os.isatty(0) or (command is None and not _client_speaks(arguments, commands)):
        return
    _answer(error, command or "agent", _explains(arguments, command))


def served_command(arguments: Sequence[str], commands: Sequence[str]) -> str | None:
    """The command that was meant, if it is one that serves a client on stdio."""
    named = next((word for word in arguments if word in commands), None)
    if named is None:
        first = next((word for word in arguments if not word.startswith("-")), "")
        named = next(iter(difflib.get_close_matches(first, commands, n=1)), None)
    return named if named in _SERVED else None


def _explains(arguments: Sequence[str], command: str | None) -> bool:
    """What `--on-start-failure` says, or else the command's default."""
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name == "--on-start-failure":
            given = value if equals else next(words, "")
            if given in ("explain", "error"):
                return given == "explain"
    return command == "run"


def _client_speaks(arguments: Sequence[str], commands: Sequence[str]) -> bool:
    """Whether a client initializes us, although no command was named; its words are kept."""
    from conductor.transport.inherited_stdio import prefetched_stdin

    if any(word in commands for word in arguments):
        return False  # a command that serves no client
    try:
        if not select.select([0], [], [], _PATIENCE)[0]:
            return False
        prefetched_stdin.append(os.read(0, 65536))
    except OSError:
        return False
    return b'"initialize"' in prefetched_stdin[0]


def _answer(error: click.UsageError, command: str, explains: bool) -> NoReturn:
    from conductor.cli.stdio_chain import serve_unusable_arguments
    from conductor.errors import CommandLineError

    usage = error.ctx.get_usage() if error.ctx is not None else None
    is_help = isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ()))
    reason = "Missing command." if is_help else error.format_message()
    mode: Literal["agent", "proxy"] = "proxy" if command == "proxy" else "agent"
    mistake = CommandLineError(reason, usage)
    serve_unusable_arguments(mistake, mode=mode, explains=explains and mode == "agent")


def _secrets(arguments: Sequence[str]) -> list[str]:
    """Values in the arguments that are called, or look like, secrets."""
    pairs = [pair for word in arguments for pair in _NAMED_VALUE.findall(word)]
    return [part for name, value in pairs for part in secret_parts(name, value)]
