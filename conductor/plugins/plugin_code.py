"""Lines of plugin code in tracebacks, and on the stack of a blocked event loop."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable, Iterator
from itertools import takewhile
from types import FrameType
from typing import Final

import trio

__all__ = ["blocking_line", "line_of", "raised_at"]

_OURS: Final = (
    "<",  # generated code, frozen modules
    os.path.dirname(os.path.dirname(__file__)) + os.sep,
    os.path.dirname(trio.__file__) + os.sep,
)
_STDLIB: Final = os.path.dirname(os.__file__) + os.sep
_PACKAGES: Final = ("site-packages", "dist-packages")
_RUN_LOOP: Final = trio.run.__code__.co_filename
_IMPORT: Final = "<frozen importlib"


def blocking_line(frame: FrameType | None) -> tuple[str, bool]:
    """What runs in a stack, as file:line, and whether it is a function of a plugin, and no import;
    `frame` is its innermost frame, also of a thread that goes on meanwhile."""
    if frame is None:
        return "an unknown place", False
    stack = list(takewhile(_is_in_task, traceback.walk_stack(frame)))
    *_, line = (None, *_of_author(reversed(stack)))
    if line is None:
        return f"{frame.f_code.co_filename}:{frame.f_lineno}", False
    is_import = any(each.f_code.co_filename.startswith(_IMPORT) for each, _ in stack)
    return f"{line[1]}:{line[2]}", not is_import


def raised_at(exc: BaseException) -> Iterator[tuple[str, str, int]]:
    """The author's frames of a traceback, the innermost last: name of the function, file, and
    line."""
    return _of_author(traceback.walk_tb(exc.__traceback__))


def line_of(exc: BaseException) -> str:
    """The author's line that raised an exception: ` (notes.py:9)`, or nothing."""
    *_, last = (None, *raised_at(exc))
    return "" if last is None else f" ({os.path.basename(last[1])}:{last[2]})"


def _of_author(frames: Iterable[tuple[FrameType, int]]) -> Iterator[tuple[str, str, int]]:
    """Those of the author among frames, the outermost first. Those of libraries that the author has
    called are left out."""
    directory = None
    for frame, line in frames:
        file = frame.f_code.co_filename
        if file.startswith(_OURS) or (file.startswith(_STDLIB) and not _is_of_package(file)):
            continue
        directory = directory or os.path.dirname(file)
        if file.startswith(directory):
            yield frame.f_code.co_name, file, line


def _is_in_task(frame: tuple[FrameType, int]) -> bool:
    return frame[0].f_code.co_filename != _RUN_LOOP


def _is_of_package(file: str) -> bool:
    return any(name in file for name in _PACKAGES)
