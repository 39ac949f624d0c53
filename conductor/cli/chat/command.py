"""`acp-conductor chat FILE`, `acp-conductor chat -- [PROXY]... AGENT`: talk to an agent."""

from __future__ import annotations

from typing import Any, Final

import click

from conductor.cli.log_defaults import log_for_people
from conductor.cli.prompt.options import (
    ChainCommand,
    chain_of,
    session_options,
    words_behind_dashes,
)
from conductor.cli.trace_options import open_trace, trace_options
from conductor.cli.word_completion import complete_first_chain

__all__ = ["command"]

_EXAMPLE: Final = "acp-conductor chat -- claude-agent-acp"


@click.command("chat", cls=ChainCommand)
@click.argument(
    "words",
    nargs=-1,
    metavar="FILE|-- [PROXY]... AGENT",
    shell_complete=complete_first_chain,
)
@session_options
@trace_options
@click.pass_context
def command(ctx: click.Context, /, words: tuple[str, ...], **settings: Any) -> None:
    """Talk with the agent of a chain, on a terminal.

    The chain is a chain FILE or, behind `--`, commands as for `agent`. Enter sends a prompt,
    Alt-Enter begins a new line; pasted lines stay together. Tab completes the slash commands of
    the agent. The history of prompts is kept, except for those that begin with a space.

    Ctrl-C cancels the turn, a second one kills the chain; Ctrl-D or /exit leaves.

    \b
    Examples:
      acp-conductor chat review.yaml
      acp-conductor chat review.yaml --session 0193-4af2
      acp-conductor chat -- "uvx notes-proxy" "claude-agent-acp"
    """
    are_commands = len(words) == words_behind_dashes(ctx)
    if not words or (len(words) > 1 and not are_commands):
        raise click.UsageError("expected one chain file, or commands behind `--`; see --help")
    chain = chain_of(words, are_commands=are_commands, example=_EXAMPLE)
    log_for_people(ctx)
    from conductor.cli.chat.run import run_chat
    from conductor.cli.prompt.chain_run import RunSettings

    run_chat(chain, RunSettings(trace=open_trace(), **settings))
