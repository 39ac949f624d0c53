"""Mistakes in the chain of `wrap` when the agent runs alone: nothing else would report them.

A person who tries the command in a terminal sees them, and a login still works. No plugin is
imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from conductor.chainfile.model import ChainFile
from conductor.cli.wrapped_chain import chain_of_uses, load_wrapped_chain
from conductor.errors import ChainFileError, StartError

__all__ = ["warn_of_mistakes"]


def warn_of_mistakes(
    file: str | None, uses: Sequence[str], argv: Sequence[str]
) -> ChainFile | None:
    """Print the mistakes of the chain file, or of `--use`, as warnings; return the chain."""
    from conductor.cli.load import print_diagnostics

    chain = None
    try:
        chain = chain_of_uses(uses, argv) if file is None else load_wrapped_chain(file, argv)
        mistakes = [*_unknown_plugins(chain)]
    except ChainFileError as exc:
        print_diagnostics(exc.diagnostics)
        mistakes = ["its chain file has mistakes"]
    except ValueError as exc:
        mistakes = [str(exc)]
    for mistake in mistakes:
        _say(f"{mistake}: with an editor, this chain does not start")
    return chain


def _unknown_plugins(chain: ChainFile) -> Iterator[str]:
    from conductor.plugins.loading import check_name

    for spec in chain.flat():
        if spec.use is not None:
            try:
                check_name(spec)
            except StartError as exc:
                yield exc.reason


def _say(text: str) -> None:
    print(f"acp-conductor: {text}", file=sys.stderr, flush=True)
