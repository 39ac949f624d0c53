"""`acp-conductor agent PROXY… AGENT`: serve a chain of these on stdin and stdout."""

from __future__ import annotations

from typing import Literal

import click

from conductor.cli.trace_options import open_trace, trace_options

__all__ = ["command"]


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
def command(
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
