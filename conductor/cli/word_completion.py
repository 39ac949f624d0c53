"""Shell completion of arguments: chain files, files, names of components."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["complete_component", "complete_file", "complete_first_chain"]


def complete_first_chain(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """A chain file as the first of several words; nothing for those behind it, which are texts."""
    from conductor.cli.other_files import CHAIN_PATH

    earlier = ctx.params.get(param.name or "")
    return [] if earlier else CHAIN_PATH.shell_complete(ctx, param, incomplete)


def complete_file(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def complete_component(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The names of installed components; for what begins none of them, files."""
    from click.shell_completion import CompletionItem

    from conductor.plugins.loading import entry_points

    names = [CompletionItem(name) for name in sorted(entry_points()) if name.startswith(incomplete)]
    return names or complete_file(ctx, param, incomplete)
