"""`acp-conductor run FILE`"""

from __future__ import annotations

from functools import partial
from typing import Literal

import click

from conductor.cli.other_files import CHAIN_PATH, other_files_options
from conductor.cli.trace_options import open_trace, trace_options

__all__ = ["command"]


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
    from conductor.cli.stdio_chain import serve_path
    from conductor.projects.chooser import OtherFiles

    others = OtherFiles(user=not no_user, project=not no_project)
    login = click.get_current_context().obj
    if login is not None:
        from conductor.cli.agent_login import run_agent_alone
        from conductor.cli.file_chooser import file_chooser
        from conductor.cli.load import load_chain, read_chain

        chain = read_chain(file, "agent")
        load = partial(load_chain, file, "agent")
        chain = file_chooser(file, chain, load, others).likely() or chain
        run_agent_alone(chain.flat(), login.args, login.env)
    serve_path(file, on_start_failure=on_start_failure, trace=open_trace(), others=others)
