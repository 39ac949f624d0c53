"""`acp-conductor wrap [--chain FILE | --use NAME…] -- AGENT ARGS…`"""

from __future__ import annotations

from functools import partial
from typing import Literal

import click

from conductor.cli.arguments import CHAIN_PATH, complete_component, other_files_options
from conductor.cli.trace_options import open_trace, trace_options

__all__ = ["command"]


@click.command("wrap", context_settings={"allow_interspersed_args": False})
@click.argument(
    "agent", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] AGENT [ARGS]..."
)
@click.option(
    "--chain",
    "file",
    type=CHAIN_PATH,
    metavar="FILE",
    help="A chain file; AGENT replaces its agent.",
)
@click.option(
    "--use",
    "uses",
    multiple=True,
    metavar="NAME[:{OPTION: VALUE}]",
    shell_complete=complete_component,
    help="A ready-made proxy or FILE.py:CLASS, with options as YAML or JSON. May be repeated; the "
    "first is nearest the editor.",
)
@click.option(
    "--on-start-failure",
    type=click.Choice(["explain", "error"]),
    help="As for `run`.",
)
@other_files_options
@trace_options
def command(
    agent: tuple[str, ...],
    file: str | None,
    uses: tuple[str, ...],
    on_start_failure: Literal["explain", "error"] | None,
    no_project: bool,
    no_user: bool,
) -> None:
    """Put a chain in front of an agent: write this before the command of the agent.

    Arguments, environment and working directory are passed on. In a terminal, and if the input is
    not JSON-RPC, the agent runs alone, in the sandbox that the chain file has for it: so the login
    of an agent works as without the chain.

    \b
    Examples:
      acp-conductor wrap --use context -- claude-agent-acp
      acp-conductor wrap --use 'context:{files: [AGENTS.md]}' -- gemini --acp
      acp-conductor wrap --chain ~/chains/review.yaml -- npx -y some-agent
    """
    from conductor.chain.chooser import OtherFiles
    from conductor.cli.agent_alone import client_speaks, run_agent_alone, run_unwrapped
    from conductor.cli.chain_run import ChainRun, is_pipe
    from conductor.cli.wrapped_chain import chain_of_uses, load_wrapped_chain, warn_of_mistakes
    from conductor.transport.inherited_stdio import open_missing_stdio

    if file is not None and uses:
        raise click.UsageError("--chain and --use exclude each other: write `use:` into the file")
    others = OtherFiles(user=not no_user, project=not no_project)
    open_missing_stdio()
    if not client_speaks():
        chain = warn_of_mistakes(file, uses, agent)
        if chain is not None and chain.flat()[-1].sandbox is not None:
            run_agent_alone(chain.flat(), (), {})
        run_unwrapped(agent)
    if file is not None:
        load = partial(load_wrapped_chain, file, agent, allow_special_files=is_pipe(file))
        run = ChainRun.of_file(file, "agent", on_start_failure, others, load)
    else:
        try:
            run = ChainRun(chain_of_uses(uses, agent), "agent", on_start_failure, others)
        except ValueError as exc:
            raise click.UsageError(str(exc)) from None
    run.serve(open_trace())
