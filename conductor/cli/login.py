"""`acp-conductor login FILE [METHOD]`"""

from __future__ import annotations

import click

from conductor.cli.arguments import CHAIN_PATH
from conductor.cli.log_defaults import log_for_people

__all__ = ["command"]


@click.command("login")
@click.argument("file", type=CHAIN_PATH)
@click.argument("method", required=False)
@click.pass_context
def command(ctx: click.Context, /, file: str, method: str | None) -> None:
    """Log in to the agent of the chain of FILE, with one of the methods that it offers.

    Without METHOD, they are listed. The proxies of the chain are not started. A method in a
    terminal runs the agent's own program in this one, as the chain would start it: with its
    environment, working directory, sandbox or ssh. Any other is performed by the agent, which may
    open a browser; an agent that keeps such a login in its process only has to be asked again by
    the editor.

    Exit codes: 0 logged in, 1 refused, 2 wrong usage or chain file, 3 the agent did not start; of
    a method in a terminal, that of the agent's program.

    \b
    Examples:
      acp-conductor login review.yaml
      acp-conductor login review.yaml claude-login
    """
    from conductor.cli.load import read_chain

    chain = read_chain(file, "agent")
    log_for_people(ctx)
    from conductor.cli.login_run import log_in

    log_in(chain, method)
