"""The command `acp-conductor`. Each command is a module of its own, imported when it is used."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """The entry point of the console script."""
    from conductor.cli.commands import acp_conductor

    acp_conductor(prog_name="acp-conductor")
