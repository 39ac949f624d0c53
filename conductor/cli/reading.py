"""Reading chain files for a command: what is wrong with them goes to stderr, with exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Literal

from conductor.chainfile import ChainFile, Problem, load
from conductor.errors import ChainFileError
from conductor.masking import hide_environment, masked

__all__ = ["check_options", "print_problems", "read_chain", "read_file", "report"]


def read_chain(
    path: str,
    need: Literal["agent", "proxies", "either"] = "either",
    *,
    any_kind: bool = False,
) -> ChainFile:
    """The chain of a file; exits with 2, and every problem on stderr, if it has any. Plugins are
    imported when the chain starts, where they run."""
    chain = read_file(path, any_kind=any_kind)
    if need == "agent" and chain.agent is None:
        print(
            f"{path}: error: this chain has no `agent:`; it can be part of another", file=sys.stderr
        )
        sys.exit(2)
    if need == "proxies" and chain.agent is not None:
        place = chain.agent.place or path
        print(f"{place}: error: a chain of proxies must not have an `agent:`", file=sys.stderr)
        sys.exit(2)
    return chain


def read_file(path: str, *, any_kind: bool = False) -> ChainFile:
    """The same, whatever it is for. `any_kind`: see `conductor.chainfile.load`."""
    try:
        return load(path, any_kind=any_kind)
    except ChainFileError as exc:
        report(exc)
        sys.exit(2)


def check_options(chain: ChainFile) -> None:
    """Exit with 2, and every problem on stderr, if plugins cannot be made with their options.

    For what is to run for long; a chain that a client waits for says so when it starts.
    """
    specs = [spec for spec in chain.flat() if spec.use is not None]
    if specs:
        from conductor.cli.plugin_check import check_plugins

        problems = [found for found in check_plugins(specs) if found.severity == "error"]
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
