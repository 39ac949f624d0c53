"""Import guard: `run()` does nothing in a module that is imported as a plugin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["importing_plugin", "is_importing_plugin"]

_importing: ContextVar[bool] = ContextVar("importing_plugin", default=False)


@contextmanager
def importing_plugin() -> Iterator[None]:
    """Mark the modules imported in this block as plugins."""
    token = _importing.set(True)
    try:
        yield
    finally:
        _importing.reset(token)


def is_importing_plugin() -> bool:
    return _importing.get()
