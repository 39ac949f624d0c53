"""Plugin code on a stack: which plugin runs, which of its handlers, and at which line.

For a watchdog thread that looks at the stack of a blocked event loop, and for tracebacks. Nothing
is recorded per message: the local variables of this package's functions tell the handler.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

import msgspec
import trio

from conductor.chainfile.model import ComponentSpec

__all__ = ["PluginCode", "line_of", "location", "plugin_code", "raised_at"]

_HERE: Final = os.path.dirname(__file__) + os.sep
_OURS: Final = (
    "<",  # generated code, frozen modules
    os.path.dirname(os.path.dirname(__file__)) + os.sep,
    os.path.dirname(trio.__file__) + os.sep,
)
_STDLIB: Final = os.path.dirname(os.__file__) + os.sep
_PACKAGES: Final = ("site-packages", "dist-packages")


class PluginCode(msgspec.Struct, frozen=True):
    """Plugin code on a stack."""

    call: object
    """The same object as long as a handler or a task of the plugin runs; `None` while the plugin is
    imported and made."""
    fields: dict[str, str]
    """Log fields: `plugin`, the component's name, `at`, the plugin's innermost line as file:line,
    and `handler` and `method`."""


def plugin_code(frame: FrameType | None) -> PluginCode | None:
    """The plugin code that runs in a stack; `frame` is its innermost frame.

    May be called while another thread runs this stack.
    """
    authors: list[FrameType] = []
    while frame is not None:
        if _is_of_author(frame):
            authors.append(frame)
        elif authors and frame.f_code.co_filename.startswith(_HERE):
            variables: dict[str, Any] = frame.f_locals
            spec = variables.get("spec")
            owner: Any = variables.get("self")
            if isinstance(spec, ComponentSpec):
                return PluginCode(None, {"plugin": spec.name, "at": _innermost(authors)})
            if hasattr(owner, "plugin") and hasattr(owner, "name"):
                fields = {"plugin": owner.name, "at": _innermost(authors)}
                call = variables.get("handler_call")
                if call is None or call.done:
                    return PluginCode(owner, fields)
                return PluginCode(call, fields | call.fields())
        frame = frame.f_back
    return None


def _innermost(authors: list[FrameType]) -> str:
    """The innermost line of the plugin itself, not of a library that it has called."""
    directory = os.path.dirname(authors[-1].f_code.co_filename)
    return location(next(each for each in authors if each.f_code.co_filename.startswith(directory)))


def raised_at(exc: BaseException) -> Iterator[tuple[str, str, int]]:
    """The author's frames of a traceback, the innermost last: name of the function, file, and line.
    Those of libraries that the author has called are left out."""
    directory = None
    for frame, line in traceback.walk_tb(exc.__traceback__):
        if not _is_of_author(frame):
            continue
        file = frame.f_code.co_filename
        directory = directory or os.path.dirname(file)
        if file.startswith(directory):
            yield frame.f_code.co_name, file, line


def line_of(exc: BaseException) -> str:
    """The author's line that raised an exception: ` (notes.py:9)`, or nothing."""
    *_, last = (None, *raised_at(exc))
    return "" if last is None else f" ({os.path.basename(last[1])}:{last[2]})"


def location(frame: FrameType) -> str:
    """The current line of a frame, as file:line."""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_of_author(frame: FrameType) -> bool:
    """Whether it is code of neither the conductor, trio nor the standard library."""
    file = frame.f_code.co_filename
    if file.startswith(_OURS):
        return False
    return not file.startswith(_STDLIB) or any(name in file for name in _PACKAGES)
