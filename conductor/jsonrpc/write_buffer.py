"""What waits to be written to one peer. Pure: the caller brings the `write_now`.

Messages are put as pieces and joined once, when they are flushed; what the peer did not take stays
in line as it is, so no byte is copied twice however slowly the peer reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

import attrs

from conductor.jsonrpc.messages import Payload

__all__ = ["WriteBuffer"]

_LARGE_PIECE: Final = 4096
_MAX_PIECES: Final = 60

WriteNow = Callable[[Sequence[bytes | memoryview]], int]


@attrs.define(eq=False, repr=False)
class WriteBuffer:
    """`size` is the number of bytes that the peer has not taken, as of the last `flush`.

    `unflushed` are the pieces of lines that were added since; nothing of them is written yet.
    """

    size: int = 0
    unflushed: list[bytes | Payload] = attrs.field(factory=list)
    _backlog: deque[memoryview] = attrs.field(factory=deque)

    def flush(self, write_now: WriteNow) -> bool:
        """Write what the peer takes. True when nothing is left."""
        if self.unflushed:
            unflushed, self.unflushed = self.unflushed, []
            if len(unflushed) <= _MAX_PIECES and sum(map(len, unflushed)) > _LARGE_PIECE * len(
                unflushed
            ):
                self._queue(unflushed)
            else:
                joined = b"".join(unflushed)
                if not self._backlog:
                    written = write_now((joined,))
                    if written == len(joined):
                        return True  # as nearly always: no view, no queue
                    self._queue((memoryview(joined)[written:],))
                    return False
                self._queue((joined,))
        while self._backlog:
            # Tried until it is refused: a peer that was woken may have made room by now.
            written = write_now(tuple(islice(self._backlog, _MAX_PIECES)))
            if not written:
                return False
            self._drop(written)
        return True

    def clear(self) -> None:
        """Forget everything: the peer is gone."""
        self.unflushed.clear()
        self._backlog.clear()
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self.unflushed or self._backlog)

    def _queue(self, pieces: Sequence[bytes | memoryview]) -> None:
        views = [memoryview(piece) for piece in pieces]
        self._backlog.extend(view for view in views if view.nbytes)
        self.size += sum(view.nbytes for view in views)

    def _drop(self, written: int) -> None:
        self.size -= written
        backlog = self._backlog
        while written:
            first = backlog[0]
            if written < first.nbytes:
                backlog[0] = first[written:]
                return
            written -= first.nbytes
            backlog.popleft()
