"""The chain for the next client of a server: its file is read again after it has changed.

Clients that are connected keep their chain. A file that has mistakes changes nothing: new clients
get the chain from before, and the log says so, once for each change.
"""

from __future__ import annotations

from typing import Final

import attrs

from conductor.chain.reloadable_chain import ReloadableChain
from conductor.chainfile.model import ChainFile
from conductor.errors import ChainFileError
from conductor.log import get_logger

__all__ = ["CurrentChain"]

log: Final = get_logger(component="server")


@attrs.define(eq=False)
class CurrentChain:
    """Called for the chain of a new client. It costs a few `stat` calls."""

    _files: ReloadableChain

    @property
    def refused(self) -> ChainFileError | None:
        """Why no chain starts: a program in a sandbox could have written the changed files."""
        return self._files.refused

    def __call__(self) -> ChainFile:
        is_changed = self._files.is_changed
        if is_changed:
            self._files.reload()
        chain, mistakes = self._files.chain, self._files.mistakes
        assert not isinstance(chain, ChainFileError)
        if is_changed and mistakes is not None:
            problem = str(mistakes.diagnostics[0])
            log.error("changed chain file not used", problem=problem)
        elif is_changed:
            log.info("changed chain file read", file=chain.path)
        return chain
