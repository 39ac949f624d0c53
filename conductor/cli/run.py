"""`acp-conductor run FILE`"""

from __future__ import annotations

from typing import Literal

import click

from conductor.cli.trace_options import open_trace, trace_options

__all__ = ["command"]


@click.command("run")
@click.argument("file", type=click.Path())
@click.option(
    "--on-start-failure",
    type=click.Choice(["explain", "error"]),
    help="If the chain does not start: explain the reason in the chat and try again with each new "
    "session, or answer `initialize` with an error. The default is the chain file's "
    "`on_start_failure`, or explain.",
)
@trace_options
def command(file: str, on_start_failure: Literal["explain", "error"] | None) -> None:
    """Serve the chain of FILE to the editor that started this, on stdin and stdout.

    Mistakes in FILE are also reported to the editor.

    \b
    Examples:
      acp-conductor run chains/hello.yaml
      acp-conductor --log debug run ~/chains/review.yaml
    """
    from conductor.cli.stdio_chain import serve_path

    serve_path(file, on_start_failure=on_start_failure, trace=open_trace())
