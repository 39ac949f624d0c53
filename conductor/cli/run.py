"""`acp-conductor run FILE`, `agent PROXY… AGENT`, `proxy PROXY…|FILE`: serve a chain on stdin and
stdout."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

import click

from conductor.cli.arguments import CHAIN_PATH, complete_first_chain, other_files_options
from conductor.cli.trace_options import open_trace, trace_options

if TYPE_CHECKING:
    from conductor.cli.load import RequiredKind

__all__ = ["agent_command", "command", "proxy_command"]


@click.command("run")
@click.argument("file", type=CHAIN_PATH)
@click.option(
    "--on-start-failure",
    type=click.Choice(["explain", "error"]),
    help="If the chain does not start: explain the reason in the chat and try again with each new "
    "session, or answer `initialize` with an error. The default is the chain file's "
    "`on_start_failure`, or explain.",
)
@other_files_options
@trace_options
def command(
    file: str,
    on_start_failure: Literal["explain", "error"] | None,
    no_project: bool,
    no_user: bool,
) -> None:
    """Serve the chain of FILE to the editor that started this, on stdin and stdout.

    FILE may be the name of a chain in the user's configuration directory. Mistakes in FILE are also
    reported to the editor. Proxies of the user's `chain.yaml`, and of `.acp-conductor.yaml` in the
    project of a session, are added.

    \b
    Examples:
      acp-conductor run chains/hello.yaml
      acp-conductor --log debug run ~/chains/review.yaml
    """
    from conductor.chain.chooser import OtherFiles
    from conductor.cli.chain_run import ChainRun

    others = OtherFiles(user=not no_user, project=not no_project)
    login = click.get_current_context().obj
    need: RequiredKind = "either" if login is None else "agent"
    run = ChainRun.of_file(file, need, on_start_failure, others)
    if login is not None:
        run.log_in(login)
    run.serve(open_trace())


@click.command("agent")
@click.argument("components", nargs=-1, required=True, metavar="[PROXY]... AGENT")
@click.option("-n", "--name", default="conductor", help="A name for logs and traces.")
@click.option(
    "--on-start-failure",
    type=click.Choice(["explain", "error"]),
    default="error",
    show_default=True,
    help="As for `run`.",
)
@trace_options
def agent_command(
    components: tuple[str, ...], name: str, on_start_failure: Literal["explain", "error"]
) -> None:
    """Serve a chain to the editor that started this, on stdin and stdout.

    Each component is one argument: a command as a shell would split it, with NAME=value in front
    for its environment, or JSON: {"command": "…", "args": […], "env": {…}}. The last is the agent.

    \b
    Examples:
      acp-conductor agent claude-agent-acp
      acp-conductor agent "uvx notes-proxy --db notes.sqlite" "DEBUG=1 gemini --acp"
    """
    from conductor.cli.chain_run import ChainRun
    from conductor.cli.component_specs import parse_component_arguments

    run = ChainRun.of_components(parse_component_arguments(components), "agent", on_start_failure)
    login = click.get_current_context().obj
    if login is not None:
        run.log_in(login)
    run.serve(open_trace())


@click.command("proxy")
@click.argument(
    "components", nargs=-1, metavar="[PROXY]...|FILE.yaml", shell_complete=complete_first_chain
)
@click.option("-n", "--name", default="conductor", help="A name for logs and traces.")
@trace_options
def proxy_command(components: tuple[str, ...], name: str) -> None:
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
