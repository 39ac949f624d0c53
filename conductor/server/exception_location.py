"""Exceptions of code that reads requests, for the log: what and where, without their text.

The text of an exception, of one that it came from, or of a local variable may hold a request, with
the bearer token in it (hypercorn's of an HTTP/2 preface holds the bytes that came with it).
"""

from __future__ import annotations

import traceback
from pathlib import PurePath

__all__ = ["exception_location"]

_FRAMES = 5


def exception_location(exc: BaseException) -> dict[str, str]:
    """Fields for the log: the type of the exception, and the innermost calls that it passed."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    frames = traceback.extract_tb(exc.__traceback__)[-_FRAMES:]
    calls = [f"{'/'.join(PurePath(f.filename).parts[-2:])}:{f.lineno} {f.name}" for f in frames]
    return {"error": type(exc).__name__, "at": " < ".join(reversed(calls))}
