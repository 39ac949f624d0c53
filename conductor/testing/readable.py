"""Failures of tests of proxies as pytest can show them: without exception groups and inner frames.

pytest-trio runs each test in a nursery, so that every failure is an exception group. Of a group,
pytest shows no source, and the compared values of an assertion last. `readable` returns the one
exception of a group. Frames of the conductor and of trio are left out too, if the author's code has
raised it, or its text tells the cause; `--full-trace` keeps them.
"""

from __future__ import annotations

import contextlib
import os
from types import TracebackType
from typing import Final

import trio

import conductor
from conductor.errors import ConductorError
from conductor.testing.failures import leaves
from conductor.testing.script import ScriptError

__all__ = ["readable"]

_INNER: Final = (
    "<",  # generated code
    os.path.dirname(conductor.__file__) + os.sep,
    os.path.dirname(trio.__file__) + os.sep,
    contextlib.__file__,
)
_INNER_PARTS: Final = tuple(f"{os.sep}{name}{os.sep}" for name in ("outcome", "pytest_trio"))
_SPEAKING: Final = (ConductorError, ScriptError)


def readable(exc: BaseException, *, full: bool = False) -> BaseException:
    """The exception of a test as it is to be shown: the only one in its groups, or `exc` itself.

    `full` keeps all frames.
    """
    found = list(leaves(exc))
    if len(found) != 1:
        return exc
    (leaf,) = found
    if not full:
        leaf.__traceback__ = _without_inner(leaf)
    return leaf


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
