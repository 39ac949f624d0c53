"""Imports trio, msgspec and PyYAML without what they import, or run, for things that are not done
here.

Every editor that opens starts a conductor and waits for it. Of the 65 ms that trio and msgspec
take, 30 are for TLS, for domain names, for Pythons older than ours, for the names of threads, for
log lines and tracebacks that nobody asked for, for attrs' validators and for JSON schemas. So while
they are imported, stand-ins are found in the place of those modules; afterwards they are gone, and
whoever imports `ssl` gets `ssl`. Nothing is lost: trio keeps its stand-ins, which import the real
module when trio wants something of it.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import ModuleType

TYPE_CHECKING = False  # as `typing` has it, which takes 3 ms that an agent can start in
if TYPE_CHECKING:
    from typing import Any

__all__ = ["import_composer", "import_msgspec_and_trio", "lean_imports"]

_VERBOSE = 64
"""`re.VERBOSE`"""


def import_msgspec_and_trio() -> None:
    """Have both imported. What is imported already is left as it is."""
    with lean_imports():
        importlib.import_module("trio")


@contextmanager
def lean_imports() -> Iterator[None]:
    """What is imported meanwhile is imported so; msgspec is at once."""
    with _instead(_stand_ins()):
        # What msgspec takes from it, it takes from `typing` if it is not there; the same, since
        # 3.11.
        with _instead({"typing_extensions": None}):
            importlib.import_module("msgspec")
        # Elsewhere than on Linux, what it looks for is found by other means.
        with _without_ldconfig() if sys.platform == "linux" else nullcontext():
            yield


def import_composer() -> None:
    """Have the part of PyYAML imported that composes nodes. To compile one of its patterns takes
    4 ms, so here they are put off, even where `re` is imported already."""
    real = sys.modules.pop("re", None)
    try:
        with _instead({"re": _Later("re", compile=_PatternLater, X=_VERBOSE)}):
            importlib.import_module("conductor.chainfile.pyyaml")
    finally:
        if real is not None:
            sys.modules["re"] = real


class _Later(ModuleType):
    """Imports what it stands for when somebody wants something of it that is not given here."""

    def __init__(self, name: str, **given: object) -> None:
        super().__init__(name)
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:  # another version wants it at once
            del sys.modules[self.__name__]
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)
        return value


class _PatternLater:
    """A regular expression that is compiled when it is used, by its methods."""

    def __init__(self, *given: Any) -> None:
        self._given = given

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("re").compile(*self._given), name)


class _LoggerLater:
    """A logger that is made when there is something to log."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("logging").getLogger(self._name), name)


def _stand_ins() -> dict[str, ModuleType | None]:
    """What is given is wanted during the imports; `cleandoc` and `dedent` by documentation only."""
    schema = _functions("msgspec._json_schema", "schema", "schema_components")
    quote = _functions("urllib.parse", "quote_from_bytes")
    uname = {"python_implementation": _implementation, "system": lambda: os.uname().sysname}
    modules = [
        *map(_Later, ("attrs.validators", "hmac", "idna", "msgspec.inspect", "ssl", "subprocess")),
        *map(_Later, ("tokenize", "traceback")),
        _Later("attr.validators", instance_of=_instance_of),
        _Later("inspect", cleandoc=str),
        _Later("logging", getLogger=_LoggerLater),
        _Later("msgspec._json_schema", **schema),
        _Later("platform", **uname),
        _Later("textwrap", dedent=str),
        _Later("urllib.parse", **quote),
    ]
    return {module.__name__: module for module in modules}


def _functions(module: str, *names: str) -> dict[str, Callable[..., Any]]:
    """Functions of a module that is imported when one of them is called."""

    def later(name: str) -> Callable[..., Any]:
        return lambda *args, **kw: getattr(importlib.import_module(module), name)(*args, **kw)

    return {name: later(name) for name in names}


def _instance_of(kind: type) -> Callable[[Any, Any, object], None]:
    """A validator; the real one tells what is wrong."""

    def validate(instance: Any, attribute: Any, value: object) -> None:
        if not isinstance(value, kind):
            validators: Any = importlib.import_module("attr.validators")
            validators.instance_of(kind)(instance, attribute, value)

    return validate


def _implementation() -> str:
    return {"cpython": "CPython", "pypy": "PyPy"}.get(sys.implementation.name, "?")


@contextmanager
def _without_ldconfig() -> Iterator[None]:
    """trio names its threads, and runs `ldconfig -p` to know where `pthread_setname_np` is: it is
    in the C library, since glibc 2.34. If it is not there, threads have no names."""
    if "ctypes.util" in sys.modules:
        yield
        return
    package: Any = importlib.import_module("ctypes")
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
        for name, module in missing.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
