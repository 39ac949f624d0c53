"""`acp-conductor run FILE`"""

from __future__ import annotations

import click

__all__ = ["command"]


@click.command("run")
@click.argument("file", type=click.Path())
def command(file: str) -> None:
    """Serve the chain of FILE to the editor that started this, on stdin and stdout.

    \b
    Examples:
      acp-conductor run chains/hello.yaml
      acp-conductor --log debug run ~/chains/review.yaml
    """
    from conductor.cli.reading import read_chain
    from conductor.cli.serve_chain import serve_file

    serve_file(read_chain(file, any_kind=True))
