"""Write buffer of one peer. Pure: the caller passes `write_now`.

Messages are added as pieces and joined once, at the next flush. Unwritten bytes stay queued as
memory views, so no byte is copied twice however slowly the peer reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

import msgspec

from conductor.jsonrpc.messages import Payload

__all__ = ["WriteBuffer"]

_LARGE_PIECE: Final = 4096
_MAX_PIECES: Final = 60

WriteNow = Callable[[Sequence[bytes | memoryview]], int]


class WriteBuffer(msgspec.Struct, eq=False):
    """`size` is the number of unwritten bytes as of the last `flush`.

    `unflushed` has the pieces of lines added since then.
    """

    size: int = 0
    unflushed: list[bytes | Payload] = msgspec.field(default_factory=list)
    _backlog: deque[memoryview] = msgspec.field(default_factory=deque)

    def flush(self, write_now: WriteNow) -> bool:
        """Write as much as the peer accepts. True if nothing is left."""
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
                        return True  # the common case: no view, no queue
                    self._queue((memoryview(joined)[written:],))
                    return False
                self._queue((joined,))
        while self._backlog:
            # Repeat until nothing is accepted: the peer may have made room meanwhile.
            written = write_now(tuple(islice(self._backlog, _MAX_PIECES)))
            if not written:
                return False
            self._drop(written)
        return True

    def clear(self) -> None:
        """Drop everything."""
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
