"""Import guard: imports at run time, one at a time in the process.

Two threads that import parts of one package at once fail if its modules import each other, as those
of `mcp` do ("cannot import name … from partially initialized module"), and the package stays
unusable. So plugins, which may import anything, and slow packages, which a thread imports, share
one lock. Also, `run()` does nothing in a module that is imported as a plugin.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import trio

__all__ = ["import_in_thread", "importing_plugin", "is_importing_plugin"]

_importing: ContextVar[bool] = ContextVar("importing_plugin", default=False)
_lock = threading.RLock()


async def import_in_thread(*modules: str) -> None:
    """Import modules beside the event loop; the MCP SDK takes half a second. Raises what they
    raise."""
    await trio.to_thread.run_sync(_import, modules)


def _import(modules: tuple[str, ...]) -> None:
    with _lock:
        for module in modules:
            importlib.import_module(module)


@contextmanager
def importing_plugin() -> Iterator[None]:
    """Mark the modules imported in this block as plugins."""
    with _lock:
        token = _importing.set(True)
        try:
            yield
        finally:
            _importing.reset(token)


def is_importing_plugin() -> bool:
    """Whether this thread imports a plugin: `run()` does nothing then."""
    return _importing.get()
