"""The chain of a session of `run` in a directory, for commands that show or try it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conductor.chain.chooser import OtherFiles
    from conductor.chainfile.layers import Layers
    from conductor.chainfile.model import ChainFile

__all__ = ["chain_here", "chain_or_exit"]


def chain_here(chain: ChainFile | None, cwd: str, others: OtherFiles) -> ChainFile | None:
    """A chain with what the user's and the project's file add; without one, what they add.

    A chain of proxies, which `run` refuses, stays as it is. Raises `ChainFileError`.
    """
    import msgspec

    from conductor.chainfile.layers import merged

    if chain is not None:
        return _with_layers(chain, cwd, others)[0]
    layers = _layers(cwd, others)
    base = layers.project or layers.user
    if base is None:
        return None
    return merged(msgspec.structs.replace(base, proxies=()), layers.user, layers.project)


def chain_or_exit(
    chain: ChainFile, cwd: str, others: OtherFiles
) -> tuple[ChainFile, tuple[str, ...]]:
    """A chain with what the user's and the project's file add, and a line for each of them.

    A chain of proxies stays as it is. Prints mistakes and exits with 2.
    """
    from conductor.cli.load import report
    from conductor.errors import ChainFileError

    try:
        return _with_layers(chain, cwd, others)
    except ChainFileError as exc:
        report(exc)
        sys.exit(2)


def _with_layers(
    chain: ChainFile, cwd: str, others: OtherFiles
) -> tuple[ChainFile, tuple[str, ...]]:
    from conductor.chainfile.layers import merged

    if chain.agent is None:
        return chain, ()
    layers = _layers(cwd, others)
    return merged(chain, layers.user, layers.project), layers.remarks


def _layers(cwd: str, others: OtherFiles) -> Layers:
    from conductor.chainfile.layers import gather_layers

    return gather_layers(cwd, os.environ, user=others.user, project=others.project)
