"""The command `acp-conductor`. Each command is a module of its own, imported when it is used."""

from __future__ import annotations

import gc
import sys

__all__ = ["main"]


def main() -> None:
    """The entry point of the console script."""
    if len(sys.argv) > 2 and sys.argv[1] in ("agent", "run", "proxy"):
        # Imports make many objects and no garbage: looking for it among them takes 9 ms of a start.
        # `serve_chain` has it looked for again when everything is there.
        gc.disable()
        from conductor.cli.early_spawn import serve_early

        serve_early(sys.argv[1:])
    from conductor.cli.command_group import run_command

    run_command(sys.argv[1:])
