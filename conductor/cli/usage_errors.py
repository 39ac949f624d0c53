"""Report usage errors: on stderr with exit code 2, and to a connected client.

An editor's settings hold the command line, and most editors show nothing of the conductor's stderr.
If stdin is not a terminal and the command serves a client on stdio, the error is therefore also the
response to `initialize`, or explained in the chat, as for an invalid chain file.
"""

from __future__ import annotations

import difflib
import io
import os
import re
import select
import sys
from collections.abc import Sequence
from typing import Final, Literal, NoReturn

import click

from conductor.secrets.formats import secret_parts
from conductor.secrets.masking import redact, register_environment, register_secrets

__all__ = ["fail_usage", "served_command"]

_SERVED: Final = ("run", "agent", "wrap", "proxy", "connect")
"""Commands that serve a client on stdin and stdout."""
_FIRST_MESSAGE_TIMEOUT: Final = 3.0
"""Seconds to wait for a client's first message if no command of `_SERVED` was named: the caller may
be a script that leaves stdin open."""
_NAMED_VALUE: Final = re.compile(r"([\w.-]+)[\"']?\s*[=:]\s*[\"']?([^\s\"',}]+)")


def fail_usage(error: click.UsageError, arguments: Sequence[str], commands: Sequence[str]) -> None:
    """Report the error on stderr. If a client is connected, answer it and exit; else return."""
    register_environment(os.environ)
    register_secrets(_secrets(arguments))
    error = _with_place(error)
    shown = io.StringIO()
    error.show(file=shown)
    print(redact(shown.getvalue()), end="", file=sys.stderr, flush=True)
    command = served_command(arguments, commands)
    if os.isatty(0) or (command is None and not _client_speaks(arguments, commands)):
        return
    _answer(error, command or "agent", _explains_in_chat(arguments, command))


def served_command(arguments: Sequence[str], commands: Sequence[str]) -> str | None:
    """The command named in `arguments`, misspellings included, if it is one of `_SERVED`."""
    named = next((word for word in arguments if word in commands), None)
    if named is None:
        first = next((word for word in arguments if not word.startswith("-")), "")
        named = next(iter(difflib.get_close_matches(first, commands, n=1)), None)
    return named if named in _SERVED else None


def _with_place(error: click.UsageError) -> click.UsageError:
    """The error of an option of all commands, such as `--log`, behind one: it says where it is
    written. Other errors as they are."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error
    root, name = error.ctx.find_root(), error.option_name
    if error.ctx is root or not any(name in option.opts for option in root.command.params):
        return error
    program = root.command_path
    place = f"{program} {name} …{error.ctx.command_path.removeprefix(program)}"
    message = f"{error.message} It is written before the command: {place}"
    return click.NoSuchOption(name, message, ctx=error.ctx)


def _explains_in_chat(arguments: Sequence[str], command: str | None) -> bool:
    """Value of `--on-start-failure`, else the default of the command: True for `explain`."""
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name == "--on-start-failure":
            given = value if equals else next(words, "")
            if given in ("explain", "error"):
                return given == "explain"
    return command in ("run", "wrap")


def _client_speaks(arguments: Sequence[str], commands: Sequence[str]) -> bool:
    """Whether a client sends `initialize` although no command was named.

    The bytes read are kept in `prefetched_stdin`.
    """
    from conductor.transport.inherited_stdio import prefetched_stdin

    if any(word in commands for word in arguments):
        return False  # a command that serves no client
    try:
        if not select.select([0], [], [], _FIRST_MESSAGE_TIMEOUT)[0]:
            return False
        prefetched_stdin.append(os.read(0, 65536))
    except OSError:
        return False
    return b'"initialize"' in prefetched_stdin[0]


def _answer(error: click.UsageError, command: str, explains: bool) -> NoReturn:
    from conductor.cli.chain_run import ChainRun
    from conductor.errors import CommandLineError

    usage = error.ctx.get_usage() if error.ctx is not None else None
    is_help = isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ()))
    reason = "Missing command." if is_help else error.format_message()
    mode: Literal["agent", "proxy"] = "proxy" if command == "proxy" else "agent"
    mistake = CommandLineError(reason, usage)
    ChainRun(mistake, mode, "explain" if explains else "error").serve()


def _secrets(arguments: Sequence[str]) -> list[str]:
    """Values in the arguments that are secrets by their name or form."""
    pairs = [pair for word in arguments for pair in _NAMED_VALUE.findall(word)]
    return [part for name, value in pairs for part in secret_parts(name, value)]
