"""Tells which functions of a proxy's author start: handlers, event handlers, tools."""

from __future__ import annotations

import dis
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from conductor.proxy.base import Plugin

__all__ = ["tell_started_functions"]


@contextmanager
def tell_started_functions(
    cls: type[Plugin], started: Callable[[str, str], None]
) -> Iterator[None]:
    """Call `started` with name and `file:line` when a handler or tool of the class begins.

    Functions of the conductor's own classes are not told. The interpreter's profile function is
    used, since decorators have kept the functions themselves: nothing else is to be wrapped.
    """
    starts = dict(_first_instructions(cls))

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code in starts and frame.f_lasti <= starts[code]:
            started(code.co_name, f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}")

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


def _first_instructions(cls: type[Plugin]) -> Iterator[tuple[CodeType, int]]:
    """The code of each function, with the offset at which its body begins: a coroutine that goes on
    after an `await` is behind it."""
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] == "conductor":
            continue
        for function in vars(base).values():
            marked = any(name.startswith("__acp_") for name in getattr(function, "__dict__", ()))
            if marked and inspect.iscoroutinefunction(function):
                code = inspect.unwrap(function).__code__
                body = (each for each in dis.get_instructions(code) if each.opname == "RESUME")
                yield code, next(body).offset
