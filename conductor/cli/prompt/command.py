"""`acp-conductor prompt FILE TEXT`, `acp-conductor prompt -- [PROXY]... AGENT TEXT`"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from conductor.cli.log_defaults import log_for_people
from conductor.cli.trace_options import open_trace, trace_options

if TYPE_CHECKING:
    from conductor.chainfile.model import ChainFile

__all__ = ["command"]

_AFTER_DASHES: Final = "conductor.cli.prompt.behind"


class _PromptCommand(click.Command):
    """Records the number of arguments after `--`, which click does not."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_AFTER_DASHES] = len(args) - args.index("--") - 1 if "--" in args else 0
        return super().parse_args(ctx, args)


@click.command("prompt", cls=_PromptCommand)
@click.argument("words", nargs=-1, metavar="FILE|-- [PROXY]... AGENT  TEXT")
@click.option(
    "--permissions",
    type=click.Choice(["ask", "allow", "deny"]),
    help="Response to permission requests of the agent; the default is ask on a terminal, deny "
    "elsewhere.",
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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per event.")
@click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    default=".",
    help="The session's working directory; the default is this one.",
)
@trace_options
@click.pass_context
def command(ctx: click.Context, /, words: tuple[str, ...], cwd: str, **settings: Any) -> None:
    """Send one prompt through a chain and print the answer as it arrives.

    The chain is a chain FILE or, behind `--`, commands as for `agent`. The TEXT - is read from
    stdin. The answer goes to stdout; tool calls, plans and everything else to stderr.

    Ctrl-C cancels the turn, a second one ends the chain at once. Exit codes: 0 the turn ended, 1 it
    failed, 2 wrong usage or chain file, 3 the chain did not start, 130 interrupted.

    \b
    Examples:
      acp-conductor prompt chains/hello.yaml "say hello"
      git diff | acp-conductor prompt review.yaml - --permissions deny
      acp-conductor prompt --json -- "uvx notes-proxy" "claude-agent-acp" "What is new?"
    """
    chain, text = _chain_and_text(words, ctx.meta[_AFTER_DASHES])
    if text == "-":
        text = sys.stdin.buffer.read().decode(errors="replace")
    if not text.strip():
        raise click.UsageError("the prompt is empty")
    log_for_people(ctx)
    from conductor.cli.prompt.run import PromptSettings, run_prompt

    run_prompt(chain, text, PromptSettings(cwd=cwd, trace=open_trace(), **settings))


def _chain_and_text(words: tuple[str, ...], behind: int) -> tuple[ChainFile, str]:
    if len(words) < 2:
        raise click.UsageError("a prompt needs a chain and a text; see --help")
    *chain, text = words
    if len(words) == behind:
        from conductor.chainfile.model import ChainFile
        from conductor.cli.component_specs import parse_component_arguments

        *proxies, agent = parse_component_arguments(chain)
        return ChainFile("<command line>", "prompt", tuple(proxies), agent), text
    if len(chain) > 1 or not (os.path.exists(chain[0]) or chain[0].endswith((".yaml", ".yml"))):
        raise click.UsageError(
            "expected one chain file and one text; commands of components come behind `--`, "
            'as in: acp-conductor prompt -- "claude-agent-acp" "hello"'
        )
    from conductor.cli.load import read_chain

    return read_chain(chain[0], "agent"), text
