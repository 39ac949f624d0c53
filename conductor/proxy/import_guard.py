"""Whether a module is being imported as a plugin: `run()` at its end does nothing then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["importing_plugin", "is_importing_plugin"]

_importing: ContextVar[bool] = ContextVar("importing_plugin", default=False)


@contextmanager
def importing_plugin() -> Iterator[None]:
    """What is imported in this block is a plugin's module, or imported by one."""
    token = _importing.set(True)
    try:
        yield
    finally:
        _importing.reset(token)


def is_importing_plugin() -> bool:
    return _importing.get()
