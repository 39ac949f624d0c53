"""The options of `prompt`, and its chain: a file, or commands behind `--`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from conductor.chainfile.model import ChainFile

__all__ = ["ChainCommand", "chain_of", "session_options", "words_behind_dashes"]

_AFTER_DASHES: Final = "conductor.cli.prompt.behind"
F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: Final = [
    click.option(
        "--session",
        metavar="ID",
        help="Continue this session, if the agent can (session/resume or session/load).",
    ),
    click.option(
        "--permissions",
        type=click.Choice(["ask", "allow", "deny"]),
        help="Response to permission requests of the agent; the default is ask on a terminal, deny "
        "elsewhere. Calls that the agent does not ask about are made in any case.",
    ),
    click.option(
        "--fs",
        type=click.Choice(["off", "read", "write"]),
        default="off",
        show_default=True,
        help="Whether the agent may read, or read and write, files through this client: text files "
        "below --cwd only. (This does not limit the agent's own file access.)",
    ),
    click.option(
        "--authenticate",
        metavar="METHOD",
        help="Log in first, with this method of the agent. If login is required, the error lists "
        "them.",
    ),
    click.option(
        "--cwd",
        type=click.Path(exists=True, file_okay=False, resolve_path=True),
        default=".",
        help="The session's working directory; the default is this one.",
    ),
    click.option(
        "--protocol",
        type=click.IntRange(1, 2),
        default=1,
        show_default=True,
        hidden=True,
        help="The version of the protocol to offer; the agent chooses.",
    ),
]


class ChainCommand(click.Command):
    """Records the number of arguments after `--`, which click does not."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_AFTER_DASHES] = len(args) - args.index("--") - 1 if "--" in args else 0
        return super().parse_args(ctx, args)


def words_behind_dashes(ctx: click.Context) -> int:
    """The number of arguments after `--`."""
    count: int = ctx.meta[_AFTER_DASHES]
    return count


def session_options(command: F) -> F:
    """Add the options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def chain_of(words: Sequence[str], *, are_commands: bool, example: str) -> ChainFile:
    """The chain of a file, or of the commands of its components."""
    if are_commands:
        from conductor.chainfile.model import ChainFile
        from conductor.cli.component_specs import parse_component_arguments

        *proxies, agent = parse_component_arguments(list(words))
        return ChainFile(path="<command line>", name="prompt", proxies=tuple(proxies), agent=agent)
    from conductor.places import named_chain, unknown_name_help
    from conductor.plugins.loading import ready_made_help

    word, file = words[0], named_chain(words[0])
    if not (os.path.exists(file) or word.endswith((".yaml", ".yml"))):
        help = ready_made_help(word)
        if help is None and file != word:
            help = f"there is no chain of this name in {os.path.dirname(file)} either; "
            help += unknown_name_help(word)
        raise click.UsageError(
            f"expected a chain file, not {word!r}{f' ({help})' if help else ''}; commands of "
            f"components come behind `--`, as in: {example}"
        )
    from conductor.cli.load import read_chain

    return read_chain(file, "agent")
