"""A group of commands that imports a command when it is used, not for `--help` of the group."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any

import click

__all__ = ["LazyGroup"]


class LazyGroup(click.Group):
    """A click group of modules.

    `summaries` are the commands with their lines in `--help`, which has the `sections`. The command
    NAME is the attribute `command` of the module `prefix` + NAME, or what `modules[NAME]` says:
    `MODULE` or `MODULE:ATTRIBUTE`.
    """

    def __init__(
        self,
        *arguments: Any,
        summaries: Mapping[str, str],
        prefix: str,
        modules: Mapping[str, str] | None = None,
        sections: Mapping[str, Mapping[str, str]] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*arguments, **settings)
        self._summaries = summaries
        self._prefix = prefix
        self._modules = modules or {}
        self._sections = sections or {"Commands": summaries}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._summaries)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self._summaries:
            return None
        module, _, attribute = self._modules.get(name, name).partition(":")
        found = importlib.import_module(self._prefix + module)
        command: click.Command = getattr(found, attribute or "command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, self._summaries))
        for title, commands in self._sections.items():
            with formatter.section(title):
                rows = [(f"{name:{widest}}", line) for name, line in commands.items()]
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        import difflib

        if args and args[0] not in self._summaries and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self._summaries, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            if ctx.parent is None and (meant := _not_a_command(args[0], self._summaries)):
                hint = f" {meant}."
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


def _not_a_command(word: str, commands: Iterable[str]) -> str | None:
    """Help for a file, a ready-made proxy, or a command of an agent as the first word; `None` for
    others."""
    import difflib
    import shutil

    from conductor.places import named_chains
    from conductor.plugins.loading import ready_made_help

    if word.endswith((".yaml", ".yml")) or word in named_chains():
        return f"For a chain file: `run {word}` in an editor, or `prompt {word} TEXT` here"
    if word.endswith(".py"):
        return f"For a proxy in Python: `try {word}`"
    if word.endswith(".jsonl"):
        return f"For a trace file: `trace show {word}`"
    if word == "help":
        return "For help: `--help`, also behind a command"
    if (meant := ready_made_help(word)) is not None:
        return meant
    if not difflib.get_close_matches(word, commands) and shutil.which(word):
        return f'For an agent: `wrap -- {word}` in an editor, or `prompt -- "{word}" TEXT` here'
    return None
