"""`acp-conductor prompt FILE TEXT...`, `acp-conductor prompt -- [PROXY]... AGENT TEXT`"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from conductor.cli.log_defaults import log_for_people
from conductor.cli.other_files import other_files_options
from conductor.cli.prompt.options import (
    ChainCommand,
    chain_of,
    session_options,
    words_behind_dashes,
)
from conductor.cli.trace_options import open_trace, trace_options
from conductor.cli.word_completion import complete_first_chain

if TYPE_CHECKING:
    from conductor.chainfile.model import ChainFile

__all__ = ["command"]

_EXAMPLE: Final = 'acp-conductor prompt -- "claude-agent-acp" "hello"'
_FILE: Final = click.Path(dir_okay=False)


@click.command("prompt", cls=ChainCommand)
@click.argument(
    "words",
    nargs=-1,
    metavar="FILE [TEXT]...|-- [PROXY]... AGENT TEXT",
    shell_complete=complete_first_chain,
)
@click.option("--file", "files", type=_FILE, multiple=True, help="Send this file, too; repeatable.")
@click.option("--image", "images", type=_FILE, multiple=True, help="Send this image, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per event.")
@session_options
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
    chain, texts = _chain_and_texts(words, words_behind_dashes(ctx))
    texts = [_stdin() if text == "-" else text for text in texts]
    if not all(text.strip() for text in texts):
        raise click.UsageError("the prompt is empty")
    log_for_people(ctx)
    from conductor.chain.chooser import OtherFiles
    from conductor.cli.chain_here import chain_or_exit
    from conductor.cli.prompt.attachments import AttachmentError, read_attachments
    from conductor.cli.prompt.chain_run import RunSettings
    from conductor.cli.prompt.run import run_prompt
    from conductor.cli.terminal_text import printable

    try:
        attachments = read_attachments(files, images)
    except AttachmentError as exc:
        raise click.UsageError(str(exc)) from exc
    if not words_behind_dashes(ctx):
        others = OtherFiles(user=not no_user, project=not no_project)
        chain, remarks = chain_or_exit(chain, settings["cwd"], others)
        for remark in remarks:
            print(printable(remark), file=sys.stderr, flush=True)
    run_settings = RunSettings(trace=open_trace(), **settings)
    run_prompt(chain, texts, attachments, run_settings, as_json=as_json)


def _chain_and_texts(words: tuple[str, ...], behind: int) -> tuple[ChainFile, list[str]]:
    are_commands = len(words) == behind
    if len(words) == 1 and not are_commands and not sys.stdin.isatty():
        words = (*words, "-")
    if len(words) < 2:
        raise click.UsageError("a prompt needs a chain and a text; see --help")
    if are_commands:
        return chain_of(words[:-1], are_commands=True, example=_EXAMPLE), [words[-1]]
    chain = chain_of(words[:1], are_commands=False, example=_EXAMPLE)
    return chain, list(words[1:])


def _stdin() -> str:
    return sys.stdin.buffer.read().decode(errors="replace")
