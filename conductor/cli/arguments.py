"""Types, options and completions of arguments that several commands have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from conductor.places import named_chain, named_chains

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = [
    "CHAIN_PATH",
    "ChainPath",
    "SimilarChoice",
    "complete_component",
    "complete_file",
    "complete_first_chain",
    "other_files_options",
]

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


def complete_first_chain(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """A chain file as the first of several words; nothing for those behind it, which are texts."""

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


class SimilarChoice(click.Choice[str]):
    """`click.Choice` with a suggestion in its error for an unknown name: the most similar choice,
    or those that `meant` lists for it."""

    def __init__(
        self, choices: Iterable[str], meant: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        super().__init__(choices)
        self._meant = meant or {}

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        import difflib

        message = super().get_invalid_choice_message(value, ctx)
        name = str(value).lower()
        near = self._meant.get(name) or difflib.get_close_matches(name, self.choices, n=1)
        return f"{message} Did you mean {' or '.join(map(repr, near))}?" if near else message
