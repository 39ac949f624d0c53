"""Checks of a plugin's class when it is defined: fields, names, versions.

Each raises `DeclarationError`, which says what to write instead.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping, Set
from typing import Any

from conductor.proxy.annotations import DeclarationError
from conductor.proxy.events import EVENTS, event_marks
from conductor.proxy.handlers import is_handler
from conductor.proxy.sessions import per_session
from conductor.schema import METHODS_BY_VERSION

__all__ = [
    "check_event_names",
    "check_fields",
    "check_lifespan",
    "check_reserved",
    "check_restart_hook",
    "check_versions",
    "missing_attribute",
]


def check_fields(cls: type) -> None:
    """Refuse fields that cannot be options, or have a mutable default."""
    annotations = _annotations_of(cls)
    for name, value in vars(cls).items():
        if name not in annotations or "ClassVar" in str(annotations[name]):
            continue
        if isinstance(value, per_session):
            raise DeclarationError(
                f"{cls.__name__}.{name} would become an option: write `{name} = per_session(…)`, "
                f"without an annotation"
            )
        default = getattr(value, "_default", value)  # of attrs.field(default=…)
        if isinstance(default, list | dict | set | bytearray):
            factory = f"lambda: {default!r}" if default else type(default).__name__
            raise DeclarationError(
                f"{cls.__name__}.{name}: a mutable default would be shared by all instances; "
                f"write `= attrs.field(factory={factory})`"
            )


def check_reserved(cls: type, names: Iterable[str], module: str) -> None:
    """Refuse a field or method that would hide one of these names of a base class in `module`."""
    for name in names:
        providers = [base for base in cls.__mro__ if name in vars(base)]
        provider = next((base for base in providers if base.__module__ == module), None)
        if provider is None:
            continue
        annotated = [b for b in cls.__mro__ if name in _annotations_of(b) and b is not provider]
        hiding = next((base for base in (*annotated, *providers) if base is not provider), None)
        if hiding is not None:
            raise DeclarationError(
                f"{hiding.__name__}.{name} would hide {provider.__name__}.{name}, which plugins "
                f"use; rename it (an option `{name}` can stay: "
                f'`{name}_: … = attrs.field(alias="{name}")`)'
            )


def check_versions(cls: Any, *, is_proxy: bool) -> None:
    """Refuse an attribute `versions` that is not a set of versions, or is not of a proxy."""
    versions = cls.versions
    known = isinstance(versions, Set | tuple) and all(type(each) is int for each in versions)
    if not known or not versions or not METHODS_BY_VERSION.keys() >= set(versions):
        raise DeclarationError(
            f"{cls.__name__}.versions is the set of the protocol versions that the proxy is for: "
            f"write `versions = {{1}}`, without an annotation (an option `versions` can stay: "
            f'`versions_: … = attrs.field(alias="versions")`)'
        )
    if not is_proxy:
        raise DeclarationError(
            f"{cls.__name__}.versions is for proxies; an agent says its version in its answer"
        )


def check_restart_hook(cls: type, *, is_proxy: bool) -> None:
    """Refuse an `on_restart` that is not of a proxy, or not asynchronous."""
    hook, where = getattr(cls, "on_restart", None), f"{cls.__name__}.on_restart"
    if hook is not None and not is_proxy:
        raise DeclarationError(f"{where} would never be called: it is for proxies")
    if hook is not None and not inspect.iscoroutinefunction(hook):
        raise DeclarationError(f"{where} must be `async def on_restart(self, sessions)`")


def check_lifespan(cls: type) -> None:
    """Refuse a `lifespan` that is a generator or a coroutine, not a context manager."""
    hook = vars(cls).get("lifespan")
    generates = inspect.isasyncgenfunction(hook) or inspect.isgeneratorfunction(hook)
    if generates or inspect.iscoroutinefunction(hook):
        raise DeclarationError(
            f"{cls.__name__}.lifespan is an async context manager: write `@asynccontextmanager` "
            f"above `async def lifespan(self)` (`from contextlib import asynccontextmanager`), and "
            f"`yield` between what it opens and closes"
        )


def check_event_names(cls: type) -> None:
    """Refuse a method with the name of an event that handles nothing: it would never be called."""
    for name, value in vars(cls).items():
        if not name.startswith("on_") or name not in EVENTS or not inspect.isfunction(value):
            continue
        if not event_marks(value) and not is_handler(value):
            shown = f'@{name}("…")' if name in ("on_update", "on_mcp") else f"@{name}"
            raise DeclarationError(
                f"{cls.__name__}.{name} is never called: events are not found by name; write "
                f"`{shown}` above it (`from conductor.proxy import {name}`), or rename it"
            )


def missing_attribute(cls: type, name: str) -> str:
    """The message of the `AttributeError` for an attribute that no instance of `cls` has."""
    message = f"{cls.__name__!r} object has no attribute {name!r}"
    owner = next((base for base in cls.__mro__ if name in _annotations_of(base)), None)
    if owner is None or "__attrs_attrs__" in vars(owner):
        return message
    return f"{message}: for an option, write `@attrs.define` above `class {owner.__name__}`"


def _annotations_of(cls: type) -> Mapping[str, Any]:
    """Return the annotations of the class body; they may contain names that only type checkers
    see."""
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(cls, format=annotationlib.Format.FORWARDREF)
    found: Mapping[str, Any] = vars(cls).get("__annotations__", {})
    return found
