"""Exceptions of plugins, scripts and handlers in a test's chain, re-raised in the test.

In: exceptions, one by one. Out: the first one, unwrapped from exception groups, with its own
traceback; its notes name the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import trio

from conductor.errors import describe

__all__ = ["ChainFailures", "leaves"]


@attrs.define(eq=False)
class ChainFailures:
    """The exceptions of one chain; one that is to be raised cancels the test's block."""

    block: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _raised: list[tuple[BaseException, str | None]] = attrs.field(factory=list)
    _logged: list[tuple[BaseException, str | None]] = attrs.field(factory=list)
    _of_block: Exception | None = None

    def add(self, exc: BaseException, handler: str | None = None) -> None:
        """Raise an exception in the test; `handler` is the file:line of what has raised it."""
        self._raised.append((exc, handler))
        self.block.cancel()

    def add_logged(self, exc: BaseException, handler: str | None = None) -> None:
        """Add an exception that is only logged: it becomes a note on the exception of the block."""
        self._logged.append((exc, handler))

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Around the test's block: logged exceptions become notes on the one that it raises."""
        try:
            yield
        except Exception as exc:
            self._of_block = exc
            for logged, handler in self._logged:
                exc.add_note(
                    f"A proxy raised before: {_line(logged, handler)}. "
                    "acp_chain(…, strict=True) raises it here"
                )
            raise

    def replace(self, exc: Exception) -> bool:
        """Whether `raise_first` raises something better than `exc`, with which the chain ended.

        An exception that is not of the block is of a script, or of a handler of a fake.
        """
        if exc is not self._of_block:
            for each in leaves(exc):
                self._raised.append((each, None))
        return bool(self._raised)

    def raise_first(self) -> None:
        """Raise the first exception, if there is any."""
        if not self._raised:
            return
        (first, _), *others = self._raised
        for exc, handler in others:
            first.add_note(f"Raised later: {_line(exc, handler)}")
        before = first.__context__
        try:
            raise first
        finally:  # else it would be that of the block: it was cancelled
            first.__context__ = before


def leaves(group: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group and its subgroups; what is not a group is yielded itself."""
    if isinstance(group, BaseExceptionGroup):
        for each in group.exceptions:
            yield from leaves(each)
    else:
        yield group


def _line(exc: BaseException, handler: str | None) -> str:
    return describe(exc) + (f" ({handler})" if handler else "")
