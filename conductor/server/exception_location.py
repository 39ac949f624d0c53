"""Type and location of an exception, for the log, without its text.

The text of an exception (or of its cause, or a local variable) may contain a request with a bearer
token: hypercorn's error for an invalid HTTP/2 preface contains the received bytes.
"""

from __future__ import annotations

import traceback
from pathlib import PurePath

__all__ = ["exception_location"]

_FRAMES = 5


def exception_location(exc: BaseException) -> dict[str, str]:
    """Log fields: `error`, the type; `at`, the innermost calls as `file:line function`."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    frames = traceback.extract_tb(exc.__traceback__)[-_FRAMES:]
    calls = [f"{'/'.join(PurePath(f.filename).parts[-2:])}:{f.lineno} {f.name}" for f in frames]
    return {"error": type(exc).__name__, "at": " < ".join(reversed(calls))}
