"""Reading chain files for a command. What is wrong with them goes to stderr, with exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Literal, TypeAlias

from conductor.chainfile import ChainFile, Place, Problem, load
from conductor.errors import ChainFileError
from conductor.masking import hide_environment, masked

__all__ = ["Need", "check_options", "load_chain", "print_problems", "read_chain", "report"]

Need: TypeAlias = Literal["agent", "proxies", "either"]


def read_chain(path: str, need: Need = "either") -> ChainFile:
    """The chain of a file; exits with 2, and every problem on stderr, if it has any. Plugins are
    imported when the chain starts, where they run."""
    try:
        return load_chain(path, need)
    except ChainFileError as exc:
        report(exc)
        sys.exit(2)


def load_chain(path: str, need: Need = "either", *, any_kind: bool = False) -> ChainFile:
    """The same, with the problems as `ChainFileError`. `any_kind`: see `chainfile.load`."""
    chain = load(path, any_kind=any_kind)
    if need == "agent" and chain.agent is None:
        message = "this chain has no `agent:`; it can be part of another"
        raise ChainFileError([Problem(Place.whole(path), message)])
    if need == "proxies" and chain.agent is not None:
        message = "a chain of proxies must not have an `agent:`"
        raise ChainFileError([Problem(chain.agent.place or Place.whole(path), message)])
    return chain


def check_options(chain: ChainFile) -> None:
    """Exit with 2, and every problem on stderr, if plugins cannot be made with their options.

    For what is to run for long; a chain that a client waits for says so when it starts.
    """
    if any(spec.use is not None for spec in chain.flat()):
        from conductor.cli.plugin_check import check_plugins

        problems = [found for found in check_plugins([chain]) if found.severity == "error"]
        if problems:
            report(ChainFileError(problems))
            sys.exit(2)


def report(error: ChainFileError) -> None:
    """Print every problem of a chain file, and how many there are.

    A line that is shown may have a secret in it that somebody wrote there instead of `${TOKEN}`.
    """
    print_problems(error.problems)
    count = len(error.problems)
    print(f"{count} problem{'s' if count != 1 else ''}", file=sys.stderr)


def print_problems(problems: Iterable[Problem]) -> None:
    """Print problems, or warnings, without secrets."""
    hide_environment(os.environ)
    for problem in problems:
        print(masked(str(problem)), end="\n\n", file=sys.stderr)
