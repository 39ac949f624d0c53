"""The chain file of a server, read again for new clients after it has changed.

In: the file as it was read at the start. Out: the chain for the next client. Clients that are
connected keep theirs. A file that has mistakes changes nothing: new clients get the chain from
before, and the log says so, once for each change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from conductor.chainfile.model import ChainFile
from conductor.errors import ChainFileError
from conductor.log import get_logger
from conductor.projects.chooser import chain_stamp
from conductor.projects.places import Stamp, stamp

__all__ = ["CurrentChain"]

log: Final = get_logger(component="server")


@attrs.define(eq=False)
class CurrentChain:
    """Called for the chain of a new client. It costs a few `stat` calls."""

    _chain: ChainFile
    _load: Callable[[], ChainFile] | None = None
    """Reads the file again; `None` if that is not possible, as for a pipe."""
    _forget_plugins: Callable[[], None] = lambda: None
    """Drops imported Python files of plugins, so that they are imported again."""
    _stamp: Stamp = attrs.field(
        default=attrs.Factory(lambda self: chain_stamp(self._chain), takes_self=True), init=False
    )

    def __call__(self) -> ChainFile:
        if self._load is None:
            return self._chain
        found = stamp(name for name, *_ in self._stamp)
        if found == self._stamp:
            return self._chain
        self._forget_plugins()
        try:
            self._chain = self._load()
        except ChainFileError as exc:
            self._stamp = found
            problem = str(exc.diagnostics[0])
            log.error("changed chain file not used: it has mistakes", problem=problem)
            return self._chain
        self._stamp = chain_stamp(self._chain)
        log.info("changed chain file read", file=self._chain.path)
        return self._chain
