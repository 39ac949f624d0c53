"""A chain, and its files, which are read again after they have changed.

Its files are that of the chain, those that it nests, and the Python files of its plugins. To look
for a change costs a `stat` call for each. A file that has mistakes changes nothing: the chain from
before stays, until the files change once more. A file that a program in a sandbox could have
written is not read: it would decide what runs outside.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from conductor.errors import ChainFileError
from conductor.files import is_below
from conductor.places import Stamp, stamp

if TYPE_CHECKING:
    from conductor.chainfile.model import ChainFile

__all__ = ["ReloadableChain", "plugin_files"]


class ReloadableChain:
    """A chain as last read; `chain` is why there is none if its file had mistakes from the start.

    `load` reads the files again; `None` for a chain that is in no file, or in a pipe: it never
    changes. `forget_plugins` drops imported Python files, so that they are imported again.
    """

    def __init__(
        self,
        chain: ChainFile | ChainFileError,
        load: Callable[[], ChainFile] | None = None,
        forget_plugins: Callable[[], None] = lambda: None,
    ) -> None:
        self.chain = chain
        self.stamp: Stamp = _stamp_of(chain) if load is not None else ()
        """Stamp of the files that the chain was read from, or that were found to have mistakes."""
        self.mistakes: ChainFileError | None = None
        """The mistakes found at the last reading, if there were any."""
        self.refused: ChainFileError | None = None
        """Why a change is not read."""
        self._writable: set[str] = set()
        """Real paths that programs in a sandbox can write to."""
        self._load = load
        self._forget_plugins = forget_plugins
        if not isinstance(chain, ChainFileError):
            self.note_sandboxes(chain)

    def note_sandboxes(self, chain: ChainFile) -> None:
        """Programs of this chain run from now on, and may write where their sandboxes let them."""
        self._writable.update(path for spec in chain.flat() for path in spec.writable_paths())

    @property
    def is_changed(self) -> bool:
        """Whether a file differs from what was read."""
        return self._found() != self.stamp

    def reload(self) -> None:
        """Read the files again. With mistakes, the chain stays as it was; `refused` is set if they
        are not read."""
        if self._load is None:
            return
        found = self._found()  # first: what changes while they are read is found at the next look
        self.refused = self._refusal(new[0] for new in found if new not in self.stamp)
        if self.refused is not None:
            self.mistakes = self.refused
            return
        self._forget_plugins()
        try:
            self.chain = self._load()
        except ChainFileError as exc:
            self.stamp, self.mistakes = found, exc
            return
        self.mistakes = None
        self.note_sandboxes(self.chain)
        known = {each[0]: each for each in found}
        self.stamp = tuple(known.get(each[0], each) for each in _stamp_of(self.chain))

    def _refusal(self, changed: Iterable[str]) -> ChainFileError | None:
        for path in changed:
            real = os.path.realpath(path)
            if any(is_below(real, directory) for directory in self._writable):
                from conductor.chainfile import Diagnostic, SourceLocation

                message = "the file has changed, and a program in a sandbox could have written it"
                help = "look at it; it is read when acp-conductor is started again"
                return ChainFileError([Diagnostic(SourceLocation.whole(path), message, help=help)])
        return None

    def _found(self) -> Stamp:
        return stamp(name for name, *_ in self.stamp)


def plugin_files(chain: ChainFile) -> list[str]:
    """The Python files of the plugins of a chain."""
    uses = [spec.use for spec in chain.flat() if spec.use is not None and ".py:" in spec.use]
    return sorted({use.rpartition(":")[0] for use in uses})


def _stamp_of(chain: ChainFile | ChainFileError) -> Stamp:
    if isinstance(chain, ChainFileError):
        return ()
    found = {chain.path}
    for spec in chain.flat():
        if spec.location is not None:
            found.add(spec.location.path)
    return stamp(sorted({*found, *plugin_files(chain)}))
