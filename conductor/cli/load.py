"""Reading chain files for a command. What is wrong with them goes to stderr, with exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Literal, TypeAlias

from conductor.chainfile import ChainFile, Diagnostic, SourceLocation, load
from conductor.errors import ChainFileError
from conductor.redaction import redact, register_environment

__all__ = [
    "RequiredKind",
    "check_options",
    "load_chain",
    "print_diagnostics",
    "read_chain",
    "report",
]

RequiredKind: TypeAlias = Literal["agent", "proxies", "either"]


def read_chain(path: str, need: RequiredKind = "either") -> ChainFile:
    """The chain of a file; exits with 2, and every problem on stderr, if it has any. Plugins are
    imported when the chain starts, where they run."""
    try:
        return load_chain(path, need)
    except ChainFileError as exc:
        report(exc)
        sys.exit(2)


def load_chain(
    path: str, need: RequiredKind = "either", *, allow_special_files: bool = False
) -> ChainFile:
    """The same, with the problems as `ChainFileError`. `allow_special_files`: see
    `chainfile.load`."""
    chain = load(path, allow_special_files=allow_special_files)
    if need == "agent" and chain.agent is None:
        message = "this chain has no `agent:`; it can be part of another"
        raise ChainFileError([Diagnostic(SourceLocation.whole(path), message)])
    if need == "proxies" and chain.agent is not None:
        message = "a chain of proxies must not have an `agent:`"
        raise ChainFileError(
            [Diagnostic(chain.agent.location or SourceLocation.whole(path), message)]
        )
    return chain


def check_options(chain: ChainFile) -> None:
    """Exit with 2, and every problem on stderr, if plugins cannot be made with their options.

    For what is to run for long; a chain that a client waits for says so when it starts.
    """
    if any(spec.use is not None for spec in chain.flat()):
        from conductor.cli.check_plugins import check_plugins

        diagnostics = [found for found in check_plugins([chain]) if found.severity == "error"]
        if diagnostics:
            report(ChainFileError(diagnostics))
            sys.exit(2)


def report(error: ChainFileError) -> None:
    """Print every problem of a chain file, and how many there are.

    A line that is shown may have a secret in it that somebody wrote there instead of `${TOKEN}`.
    """
    print_diagnostics(error.diagnostics)
    count = len(error.diagnostics)
    print(f"{count} problem{'s' if count != 1 else ''}", file=sys.stderr)


def print_diagnostics(diagnostics: Iterable[Diagnostic]) -> None:
    """Print problems, or warnings, without secrets."""
    register_environment(os.environ)
    for problem in diagnostics:
        print(redact(str(problem)), end="\n\n", file=sys.stderr)
