"""The arguments of `wrap` without click: `[--chain FILE | --use NAME…] [--] AGENT ARGS…`.

Imports nothing: components start before click is imported (`early_spawn`).
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["WrapArguments", "split_wrap_arguments"]


class WrapArguments:
    """`chain` is the chain file, `uses` the values of `--use`, `argv` the agent's command."""

    __slots__ = ("argv", "chain", "uses")

    def __init__(self, chain: str | None, uses: Sequence[str], argv: Sequence[str]) -> None:
        self.chain: str | None = chain
        self.uses: tuple[str, ...] = tuple(uses)
        self.argv: tuple[str, ...] = tuple(argv)


def split_wrap_arguments(words: Sequence[str]) -> WrapArguments | None:
    """The arguments, or `None` if there are other options or mistakes, which are left to click."""
    chains: list[str] = []
    uses: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        name, equals, value = rest.pop(0).partition("=")
        if name not in ("--chain", "--use") or not (equals or rest):
            return None
        (chains if name == "--chain" else uses).append(value if equals else rest.pop(0))
    if rest[:1] == ["--"]:
        del rest[0]
    if not rest or len(chains) > 1 or (chains and uses):
        return None
    return WrapArguments(chains[0] if chains else None, uses, rest)
