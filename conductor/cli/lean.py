"""Imports trio and msgspec without what they import, or run, for things that are not done here.

Every editor that opens starts a conductor and waits for it. Of the 65 ms that these two take, 16
are for TLS, for domain names, for Pythons older than ours, and for the names of threads. So while
they are imported, stand-ins are found in the place of those modules; afterwards they are gone, and
whoever imports `ssl` gets `ssl`. Nothing is lost: trio keeps its stand-ins, which import the real
module when trio wants something of it.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

__all__ = ["import_msgspec_and_trio"]


def import_msgspec_and_trio() -> None:
    """Have both imported. What is imported already is left as it is."""
    # What msgspec takes from it, it takes from `typing` if it is not there; the same, since 3.11.
    with _instead({"typing_extensions": None}):
        importlib.import_module("msgspec")
    if sys.platform == "linux":  # elsewhere it is found by other means
        with _without_ldconfig():
            _import_trio()
    else:
        _import_trio()


def _import_trio() -> None:
    with _instead({name: _Later(name) for name in ("hmac", "idna", "ssl")}):
        importlib.import_module("trio")


class _Later(ModuleType):
    """Imports what it stands for when somebody wants something of it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def _without_ldconfig() -> Iterator[None]:
    """trio names its threads, and runs `ldconfig -p` to know where `pthread_setname_np` is: it is
    in the C library, since glibc 2.34. If it is not there, threads have no names."""
    if "ctypes.util" in sys.modules:
        yield
        return
    package: Any = ctypes
    finder: Any = ModuleType("ctypes.util")
    finder.find_library = lambda name: "libc.so.6"
    with _instead({"ctypes.util": finder}):
        package.util = finder
        try:
            yield
        finally:
            del package.util


@contextmanager
def _instead(modules: Mapping[str, ModuleType | None]) -> Iterator[None]:
    """Have these found by `import` meanwhile, where the real ones are not imported; None is a
    module that cannot be imported."""
    missing = {name: module for name, module in modules.items() if name not in sys.modules}
    sys.modules.update(missing)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]
