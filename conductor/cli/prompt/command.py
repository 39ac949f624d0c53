"""`acp-conductor prompt FILE TEXT...`, `acp-conductor prompt -- [PROXY]... AGENT TEXT`"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from conductor.cli.arguments import complete_first_chain, other_files_options
from conductor.cli.command_group import log_for_people
from conductor.cli.trace_options import open_trace, trace_options

if TYPE_CHECKING:
    from conductor.chainfile.model import ChainFile

__all__ = ["command"]

_AFTER_DASHES: Final = "conductor.cli.prompt.behind"
_EXAMPLE: Final = 'acp-conductor prompt -- "claude-agent-acp" "hello"'
_FILE: Final = click.Path(dir_okay=False)


class _ChainCommand(click.Command):
    """Records the number of arguments after `--`, which click does not."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_AFTER_DASHES] = len(args) - args.index("--") - 1 if "--" in args else 0
        return super().parse_args(ctx, args)


@click.command("prompt", cls=_ChainCommand)
@click.argument(
    "words",
    nargs=-1,
    metavar="FILE [TEXT]...|-- [PROXY]... AGENT TEXT",
    shell_complete=complete_first_chain,
)
@click.option("--file", "files", type=_FILE, multiple=True, help="Send this file, too; repeatable.")
@click.option("--image", "images", type=_FILE, multiple=True, help="Send this image, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per event.")
@click.option(
    "--session",
    metavar="ID",
    help="Continue this session, if the agent can (session/resume or session/load).",
)
@click.option(
    "--permissions",
    type=click.Choice(["ask", "allow", "deny"]),
    help="Response to permission requests of the agent; the default is ask on a terminal, deny "
    "elsewhere. Calls that the agent does not ask about are made in any case.",
)
@click.option(
    "--fs",
    type=click.Choice(["off", "read", "write"]),
    default="off",
    show_default=True,
    help="Whether the agent may read, or read and write, files through this client: text files "
    "below --cwd only. (This does not limit the agent's own file access.)",
)
@click.option(
    "--authenticate",
    metavar="METHOD",
    help="Log in first, with this method of the agent. If login is required, the error lists them.",
)
@click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    default=".",
    help="The session's working directory; the default is this one.",
)
@click.option(
    "--protocol",
    type=click.IntRange(1, 2),
    default=1,
    show_default=True,
    hidden=True,
    help="The version of the protocol to offer; the agent chooses.",
)
@other_files_options
@trace_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    files: tuple[str, ...],
    images: tuple[str, ...],
    as_json: bool,
    no_project: bool,
    no_user: bool,
    **settings: Any,
) -> None:
    """Send prompts through a chain and print the answers as they arrive.

    The chain is a chain FILE, with the proxies that `run` adds in --cwd, or, behind `--`, commands
    as for `agent`. Several TEXTs are sent one
    after the other, in one session. The TEXT - is read from stdin, as is a missing one if stdin is
    not a terminal. The answer goes to stdout; tool calls, plans and everything else to stderr.

    Ctrl-C cancels the turn, a second one ends the chain at once. Exit codes: 0 the turn ended, 1 it
    or a handler of a proxy failed, 2 wrong usage or chain file, 3 the chain did not start, 10 the
    agent refused, 11 it reached its limit of tokens or 12 of requests, 13 it ended the turn as
    cancelled, 14 for another reason, 130 interrupted.

    \b
    Examples:
      acp-conductor prompt chains/hello.yaml "say hello"
      git diff | acp-conductor prompt review.yaml - --permissions deny
      acp-conductor prompt review.yaml "Fix this" "Now test it" --file error.log
      acp-conductor prompt --json -- "uvx notes-proxy" "claude-agent-acp" "What is new?"
    """
    are_commands = len(words) == ctx.meta[_AFTER_DASHES]
    chain, texts = _chain_and_texts(words, are_commands=are_commands)
    texts = [_stdin() if text == "-" else text for text in texts]
    if not all(text.strip() for text in texts):
        raise click.UsageError("the prompt is empty")
    log_for_people(ctx)
    from conductor.chain.chooser import OtherFiles
    from conductor.cli.load import chain_or_exit
    from conductor.cli.prompt.files import AttachmentError, read_attachments
    from conductor.cli.prompt.run import RunSettings, run_prompt
    from conductor.cli.terminal_text import printable

    try:
        attachments = read_attachments(files, images)
    except AttachmentError as exc:
        raise click.UsageError(str(exc)) from exc
    if not are_commands:
        others = OtherFiles(user=not no_user, project=not no_project)
        chain, remarks = chain_or_exit(chain, settings["cwd"], others)
        for remark in remarks:
            print(printable(remark), file=sys.stderr, flush=True)
    run_settings = RunSettings(trace=open_trace(), **settings)
    run_prompt(chain, texts, attachments, run_settings, as_json=as_json)


def _chain_and_texts(
    words: tuple[str, ...], *, are_commands: bool
) -> tuple[ChainFile, Sequence[str]]:
    if len(words) == 1 and not are_commands and not sys.stdin.isatty():
        words = (*words, "-")
    if len(words) < 2:
        raise click.UsageError("a prompt needs a chain and a text; see --help")
    if not are_commands:
        return _chain_of_file(words[0]), words[1:]
    from conductor.cli.chain_run import ChainRun
    from conductor.cli.component_specs import parse_component_arguments

    run = ChainRun.of_components(parse_component_arguments(words[:-1]))
    return run.chain_or_exit(), words[-1:]


def _chain_of_file(word: str) -> ChainFile:
    from conductor.cli.load import read_chain
    from conductor.places import named_chain, unknown_name_help
    from conductor.plugins.loading import ready_made_help

    file = named_chain(word)
    if not (os.path.exists(file) or word.endswith((".yaml", ".yml"))):
        help = ready_made_help(word)
        if help is None and file != word:
            help = f"there is no chain of this name in {os.path.dirname(file)} either; "
            help += unknown_name_help(word)
        raise click.UsageError(
            f"expected a chain file, not {word!r}{f' ({help})' if help else ''}; commands of "
            f"components come behind `--`, as in: {_EXAMPLE}"
        )
    return read_chain(file, "agent")


def _stdin() -> str:
    return sys.stdin.buffer.read().decode(errors="replace")
