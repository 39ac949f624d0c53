"""`acp-conductor completions SHELL`"""

from __future__ import annotations

import click

__all__ = ["command"]

_VARIABLE = "_ACP_CONDUCTOR_COMPLETE"
"""Set by the script in the shell, and read by click."""


@click.command("completions")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a script that completes commands, options and files in a shell.

    \b
    Examples:
      acp-conductor completions bash > ~/.local/share/bash-completion/completions/acp-conductor
      acp-conductor completions zsh > ~/.zfunc/_acp-conductor
      acp-conductor completions fish > ~/.config/fish/completions/acp-conductor.fish
    """
    from click.shell_completion import get_completion_class

    from conductor.cli.command_group import acp_conductor

    cls = get_completion_class(shell)
    assert cls is not None
    script = cls(acp_conductor, {}, "acp-conductor", _VARIABLE).source()
    # click's script for fish would end descriptions and names at their first comma.
    print(script.replace('(string split "," ', '(string split -m 1 "," '))
