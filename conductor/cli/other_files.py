"""Options and arguments of commands that use the chain files of the user and of projects."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from conductor.places import named_chain, named_chains

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["CHAIN_PATH", "ChainPath", "other_files_options"]

F = TypeVar("F", bound=Callable[..., Any])


class ChainPath(click.Path):
    """A chain file, or the name of one in the user's configuration directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return named_chain(str(super().convert(value, param, ctx)))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        names = [name for name in named_chains() if name.startswith(incomplete)]
        return [
            *map(CompletionItem, names),
            *super().shell_complete(ctx, param, incomplete),
        ]


CHAIN_PATH = ChainPath()


def other_files_options(command: F) -> F:
    """Add `--no-project` and `--no-user`."""
    project = click.option(
        "--no-project", is_flag=True, help="Ignore `.acp-conductor.yaml` of projects."
    )
    user = click.option(
        "--no-user",
        is_flag=True,
        hidden=True,
        help="Ignore `chain.yaml` of the user's configuration.",
    )
    return project(user(command))
