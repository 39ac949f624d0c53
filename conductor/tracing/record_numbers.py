"""Numbers of records: consecutive in a file, and the same each time that a record is written."""

from __future__ import annotations

import attrs

from conductor.routing.traced_port import Mark

__all__ = ["RecordNumbers"]


@attrs.define(eq=False)
class RecordNumbers:
    """Gives out the numbers of one file."""

    last: int = 0

    def take(self, mark: Mark | None = None, count: int = 1) -> int:
        """The number of the next record, of the first one of several.

        One that was written before keeps its number: the flight recorder is written several times,
        and others may have named it as their cause.
        """
        if mark is not None and mark.n is not None:
            self.last = max(self.last, mark.n + count - 1)
            return mark.n
        first = self.last + 1
        self.last += count
        if mark is not None:
            mark.n = first
        return first
