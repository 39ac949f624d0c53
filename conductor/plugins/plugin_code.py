"""Plugin code on a stack: which plugin runs, which of its functions, and at which line.

For a watchdog thread that looks at the stack of a blocked event loop. Functions that call plugin
code are marked with `calls_plugin`, which registers how to describe the call from their local
variables. So nothing is recorded per message.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import trio

__all__ = [
    "PluginCall",
    "PluginCode",
    "calls_plugin",
    "line_of",
    "location",
    "plugin_code",
    "raised_at",
]

_OURS: Final = (
    "<",  # generated code, frozen modules
    os.path.dirname(os.path.dirname(__file__)) + os.sep,
    os.path.dirname(trio.__file__) + os.sep,
)
_STDLIB: Final = os.path.dirname(os.__file__) + os.sep
_PACKAGES: Final = ("site-packages", "dist-packages")
_IMPORT: Final = "<frozen importlib._bootstrap>"


class PluginCall(msgspec.Struct, frozen=True):
    """A call of plugin code."""

    of: object
    """The same object as long as the call lasts."""
    fields: Mapping[str, str]
    """Log fields: `plugin` (the component's name), and `handler` and `method`, or `task`."""


class PluginCode(msgspec.Struct, frozen=True):
    """Plugin code on a stack."""

    call: PluginCall
    at: str
    """The innermost line of the plugin, as file:line."""
    inside: str | None
    """The innermost line of all, if the plugin has called other code, as file:line."""
    is_import: bool
    """Whether a module is imported."""


Describe: TypeAlias = Callable[[Mapping[str, Any]], PluginCall | None]
"""The call that a function makes, from its local variables; None if it makes none now."""
F = TypeVar("F", bound=Callable[..., Any])

_callers: dict[object, Describe] = {}
"""The marked functions, by code object."""


def calls_plugin(describe: Describe) -> Callable[[F], F]:
    """Mark a function that calls plugin code. The function itself stays as it is."""

    def mark(function: F) -> F:
        _callers[function.__code__] = describe
        return function

    return mark


def plugin_code(frame: FrameType | None) -> PluginCode | None:
    """The plugin code that runs in a stack; `frame` is its innermost frame.

    May be called while another thread runs this stack.
    """
    return _plugin_code(_outward(frame))


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


def _plugin_code(outward: Iterable[FrameType]) -> PluginCode | None:
    """`plugin_code` for frames, innermost first."""
    frames: list[FrameType] = []
    for each in outward:
        call = None
        if (describe := _callers.get(each.f_code)) is not None:
            with suppress(KeyError, AttributeError):  # the function has just returned
                call = describe(each.f_locals)
        if call is not None:
            return _code(call, frames)
        frames.append(each)
    return None


def location(frame: FrameType) -> str:
    """The current line of a frame, as file:line."""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _code(call: PluginCall, frames: list[FrameType]) -> PluginCode | None:
    """`frames` are those inside the call, the innermost first."""
    authors = [frame for frame in frames if _is_of_author(frame)]
    if not authors:
        return None
    directory = os.path.dirname(authors[-1].f_code.co_filename)
    own = next(each for each in authors if each.f_code.co_filename.startswith(directory))
    at, innermost = location(own), location(frames[0])
    is_import = any(frame.f_code.co_filename == _IMPORT for frame in frames)
    return PluginCode(call, at, None if innermost == at else innermost, is_import)


def _is_of_author(frame: FrameType) -> bool:
    """Whether it is code of neither the conductor, trio nor the standard library."""
    file = frame.f_code.co_filename
    if file.startswith(_OURS):
        return False
    return not file.startswith(_STDLIB) or any(name in file for name in _PACKAGES)


def _outward(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
