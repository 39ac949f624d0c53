"""`acp-conductor proxy PROXY…|FILE`"""

from __future__ import annotations

import click

from conductor.cli.usage import components_of

__all__ = ["command"]


@click.command("proxy")
@click.argument("components", nargs=-1, metavar="[PROXY]...|FILE.yaml")
@click.option("-n", "--name", default="conductor", help="A name for logs and traces.")
def command(components: tuple[str, ...], name: str) -> None:
    """Be a chain of proxies inside another conductor, on stdin and stdout.

    The components are commands as for `agent`, all of them proxies, or one chain file without an
    agent.

    \b
    Examples:
      acp-conductor proxy tools.yaml
      acp-conductor proxy "uvx notes-proxy" "python approve.py"
    """
    from conductor.cli.reading import read_chain
    from conductor.cli.serve_chain import serve, serve_file

    if len(components) == 1 and components[0].endswith((".yaml", ".yml")):
        serve_file(read_chain(components[0], "proxies"))
    serve(components_of(components), mode="proxy")
