"""`acp-conductor run FILE`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from conductor.cli.other_files import CHAIN_PATH, other_files_options
from conductor.cli.trace_options import open_trace, trace_options

if TYPE_CHECKING:
    from conductor.cli.load import RequiredKind

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
    from conductor.chain.chooser import OtherFiles
    from conductor.cli.chain_run import ChainRun

    others = OtherFiles(user=not no_user, project=not no_project)
    login = click.get_current_context().obj
    need: RequiredKind = "either" if login is None else "agent"
    run = ChainRun.of_file(file, need, on_start_failure, others)
    if login is not None:
        run.log_in(login)
    run.serve(open_trace())
