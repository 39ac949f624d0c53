"""Exceptions of plugins, scripts and handlers in a test's chain, re-raised in the test.

`ChainFailures` raises the first one, unwrapped from exception groups, with its own traceback; its
notes name the others. pytest-trio runs each test in a nursery, so that every failure is an
exception group again, and of a group, pytest shows no source, and the compared values of an
assertion last: `readable` returns the one exception in it, for the pytest plugin.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final

import attrs
import trio

import conductor
from conductor.errors import ConductorError, describe
from conductor.testing.script import ScriptError

__all__ = ["ChainFailures", "readable"]

_INNER: Final = (
    "<",  # generated code
    os.path.dirname(conductor.__file__) + os.sep,
    os.path.dirname(trio.__file__) + os.sep,
    contextlib.__file__,
)
_INNER_PARTS: Final = tuple(f"{os.sep}{name}{os.sep}" for name in ("outcome", "pytest_trio"))
_SPEAKING: Final = (ConductorError, ScriptError)


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
            for each in _leaves(exc):
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


def readable(exc: BaseException, *, full: bool = False) -> BaseException:
    """The exception of a test as it is to be shown: the only one in its groups, or `exc` itself.

    Frames of the conductor and of trio are left out too, if the author's code has raised it, or its
    text tells the cause; `full` (pytest's `--full-trace`) keeps them.
    """
    found = list(_leaves(exc))
    if len(found) != 1:
        return exc
    (leaf,) = found
    if not full:
        leaf.__traceback__ = _without_inner(leaf)
    return leaf


def _leaves(group: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group and its subgroups; what is not a group is yielded itself."""
    if isinstance(group, BaseExceptionGroup):
        for each in group.exceptions:
            yield from _leaves(each)
    else:
        yield group


def _line(exc: BaseException, handler: str | None) -> str:
    return describe(exc) + (f" ({handler})" if handler else "")


def _without_inner(exc: BaseException) -> TracebackType | None:
    """The traceback without inner frames; all of it if the conductor itself has failed."""
    entries = []
    entry = exc.__traceback__
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    shown = [each for each in entries if not _is_inner(each)]
    is_of_author = bool(entries) and not _is_inner(entries[-1])
    if not shown or not (is_of_author or isinstance(exc, _SPEAKING)):
        return exc.__traceback__
    traceback = None
    for each in reversed(shown):
        traceback = TracebackType(traceback, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return traceback


def _is_inner(entry: TracebackType) -> bool:
    file = entry.tb_frame.f_code.co_filename
    return file.startswith(_INNER) or any(part in file for part in _INNER_PARTS)
