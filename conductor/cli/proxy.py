"""`acp-conductor proxy PROXY…|FILE`"""

from __future__ import annotations

import os

import click

from conductor.cli.trace_options import open_trace, trace_options
from conductor.cli.word_completion import complete_first_chain

__all__ = ["command"]


@click.command("proxy")
@click.argument(
    "components", nargs=-1, metavar="[PROXY]...|FILE.yaml", shell_complete=complete_first_chain
)
@click.option("-n", "--name", default="conductor", help="A name for logs and traces.")
@trace_options
def command(components: tuple[str, ...], name: str) -> None:
    """Serve a chain of proxies to another conductor, on stdin and stdout.

    The components are commands as for `agent`, all of them proxies, or one chain file without an
    agent.

    \b
    Examples:
      acp-conductor proxy tools.yaml
      acp-conductor proxy "uvx notes-proxy" "python approve.py"
    """
    from conductor.cli.chain_run import ChainRun
    from conductor.cli.component_specs import parse_component_arguments

    if len(components) == 1 and _is_chain_file(components[0]):
        run = ChainRun.of_file(components[0], "proxies")
    else:
        run = ChainRun.of_components(parse_component_arguments(components), "proxy")
    run.serve(open_trace())


def _is_chain_file(word: str) -> bool:
    """Whether a word is the path of a chain file, not a command that ends with one.

    A path with a space counts only if the file exists.
    """
    if not word.endswith((".yaml", ".yml")):
        return False
    return os.path.isfile(word) or not any(char.isspace() for char in word)
