"""Loading of plugins: finds the class that `use:` names and makes an instance with its options.

Options may also be arguments: `--names '["a", "b"]'` of a program, `--with names=…` of `try`.
"""

from __future__ import annotations

import json
import os
import sys
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import attrs

from conductor.chainfile import structure_options
from conductor.chainfile.model import ENTRY_POINT_GROUP, ComponentSpec
from conductor.chainfile.options import field_types
from conductor.errors import ChainFileError, StartError, describe, line_in
from conductor.proxy.base import Agent, Plugin
from conductor.proxy.import_guard import importing_plugin

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "ENTRY_POINT_GROUP",
    "InvalidOptions",
    "check_name",
    "entry_points",
    "instantiate",
    "load_class",
    "load_class_for_role",
    "option_of_argument",
    "ready_made_help",
]

_TEXTS: Final = (str, Path, Any)
"""Types of options that are never read as JSON."""


def instantiate(spec: ComponentSpec, cls: type[Plugin]) -> Plugin:
    """An instance with the component's options. Raises only `StartError`, with every mistake in
    them.

    Converters, validators and the constructor are plugin code and may raise anything.
    """
    try:
        if attrs.has(cls):
            made: Any = structure_options(spec, cls)
            return made  # type: ignore[no-any-return]
        if not spec.options:
            return cls()
    except ChainFileError as exc:
        raise InvalidOptions(spec, exc) from None
    except BaseException as exc:
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
        why = f"{describe(exc)}{line_in(file, exc)}"
        if not attrs.has(cls) and "__init__() missing" in str(exc):
            why += "; options are the fields of a class with @attrs.define"
        raise _start_error(spec, f"{cls.__name__} cannot be made: {why}") from exc
    raise _start_error(spec, f"{cls.__name__} has no options: it is not made with @attrs.define")


class InvalidOptions(StartError):
    """The options of a plugin do not fit its class."""

    def __init__(self, spec: ComponentSpec, mistakes: ChainFileError) -> None:
        self.diagnostics: tuple[Any, ...] = mistakes.diagnostics
        reason = f"its options are wrong\n{mistakes}"
        super().__init__(spec.name, reason, location=str(self.diagnostics[0].location))


def load_class(spec: ComponentSpec) -> type[Plugin]:
    """The class that `use:` names: an entry point, or `file.py:Class`.

    Raises only `StartError`; importing the module may raise anything.
    """
    try:
        return _load_class(spec)
    except StartError:
        raise
    except BaseException as exc:  # a `__getattr__` of the module, for one
        raise _start_error(spec, f"{spec.use} cannot be loaded: {describe(exc)}") from exc


def load_class_for_role(spec: ComponentSpec, role: Literal["proxy", "agent"]) -> type[Plugin]:
    """The class of a component with this role in the chain. Raises as `load_class`."""
    cls = load_class(spec)
    if issubclass(cls, Agent) != (role == "agent"):
        kind, key = ("an agent", "agent") if issubclass(cls, Agent) else ("a proxy", "proxies")
        wanted = "the agent" if role == "agent" else "a proxy"
        raise _start_error(
            spec, f"{spec.use} is {kind} and cannot be {wanted}: write it below `{key}:`"
        )
    return cls


def _load_class(spec: ComponentSpec) -> type[Plugin]:
    assert spec.use is not None
    path, colon, class_name = spec.use.rpartition(":")
    found = _from_file(spec, path, class_name) if colon else _from_entry_point(spec, spec.use)
    if not (isinstance(found, type) and issubclass(found, Plugin)):
        name = spec.use.rpartition(":")[2]
        raise _start_error(
            spec, f"{spec.use} is not a plugin: its class begins with `class {name}(Proxy):`"
        )
    return found


def ready_made_help(word: str) -> str | None:
    """Return how to write an installed component in a chain, where its name stands in place of a
    command or a chain file; `None` for other words."""
    if word not in entry_points():
        return None
    help = f"`{word}` is a ready-made component: `use: {word}` in a chain file"
    is_proxy = word not in ("test-agent", "mcp-bridge")
    return help + (f", or `acp-conductor wrap --use {word} -- AGENT`" if is_proxy else "")


def check_name(spec: ComponentSpec) -> None:
    """Raise `StartError` if `use:` names nothing that is there; imports nothing."""
    assert spec.use is not None
    path, colon, _ = spec.use.rpartition(":")
    if not colon:
        _entry_point(spec, spec.use)
    elif not _exists(spec, path):
        raise _no_file(spec, path)


@cache
def entry_points() -> Mapping[str, EntryPoint]:
    """The components of installed packages, by name. Of two with one name, the first on `sys.path`.
    Cached: a server would otherwise read them for every client."""
    return {name: points[0] for name, points in _all_entry_points().items()}


@cache
def _all_entry_points() -> Mapping[str, Sequence[EntryPoint]]:
    """Several of one name are a mistake, unless they name the same class."""
    from importlib import metadata

    found: dict[str, list[EntryPoint]] = {}
    for point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        named = found.setdefault(point.name, [])
        if point.value not in [each.value for each in named]:
            named.append(point)
    return found


def _entry_point(spec: ComponentSpec, name: str) -> EntryPoint:
    points = entry_points()
    if name not in points:
        raise _start_error(
            spec, f"no installed package has a component called {name!r}{_hint(name, points)}"
        )
    if len(named := _all_entry_points()[name]) > 1:
        classes = " and ".join(f"{each.value} of {_package(each)}" for each in named)
        raise _start_error(spec, f"several installed packages have a component {name!r}: {classes}")
    return points[name]


def _from_entry_point(spec: ComponentSpec, name: str) -> object:
    point = _entry_point(spec, name)
    try:
        with importing_plugin():
            return point.load()
    except BaseException as exc:
        raise _start_error(spec, f"{point.value} cannot be imported: {describe(exc)}") from exc


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown package"


def _from_file(spec: ComponentSpec, path: str, class_name: str) -> object:
    module = _module(spec, path)
    try:
        return getattr(module, class_name)
    except AttributeError:
        classes = [
            name
            for name, value in vars(module).items()
            if isinstance(value, type)
            and issubclass(value, Plugin)
            and value.__module__ == module.__name__
        ]
        hint = _hint(class_name, classes) or (f"; it has {', '.join(classes)}" if classes else "")
        raise _start_error(spec, f"{path} has no class {class_name!r}{hint}") from None


def _module(spec: ComponentSpec, path: str) -> ModuleType:
    from conductor.plugins.file_imports import import_file

    if not _exists(spec, path):
        raise _no_file(spec, path)
    try:
        return import_file(path, spec.files)
    except BaseException as exc:
        why = f"{describe(exc)}{line_in(path, exc)}{_unloaded_module(spec, path, exc)}"
        raise _start_error(spec, f"{path} cannot be imported: {why}") from exc


def _unloaded_module(spec: ComponentSpec, path: str, exc: BaseException) -> str:
    """Why a module is not found that is beside a plugin with given files."""
    name = exc.name if isinstance(exc, ModuleNotFoundError) else None
    if spec.files is None or name is None:
        return ""
    beside = os.path.join(os.path.dirname(path), name.rpartition(".")[2])
    if not (os.path.exists(f"{beside}.py") or os.path.isdir(beside)):
        return ""
    return "; the module beside it is not loaded, see docs/sandbox.md and docs/projects.md"


def _exists(spec: ComponentSpec, path: str) -> bool:
    return os.path.exists(path) if spec.files is None else path in spec.files


def _no_file(spec: ComponentSpec, path: str) -> StartError:
    return _start_error(spec, f"no such file: {path}")


def _hint(name: str, known: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _start_error(spec: ComponentSpec, reason: str) -> StartError:
    location = spec.locations.get(("use",)) or spec.location
    return StartError(spec.name, reason, location=None if location is None else str(location))


def option_of_argument(cls: type, name: str, text: str) -> Any:
    """The value of an option of `cls`: JSON if it begins with `[` or `{`, except for text options.

    Lists and mappings have no other form as an argument. Raises `ValueError` if it is not JSON.
    """
    if text[:1] not in ("[", "{") or not attrs.has(cls):
        return text
    try:
        kind = field_types(cls).get(name, Any)
    except TypeError:  # an annotation that cannot be resolved: making the instance explains it
        return text
    if _can_be_text(kind):
        return text
    try:
        return json.loads(text)
    except ValueError as exc:
        example = '["a", "b"]' if text[0] == "[" else '{"a": "b"}'
        raise ValueError(f"{name}: not valid JSON, such as `{example}`: {exc}") from exc


def _can_be_text(kind: Any) -> bool:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return any(_can_be_text(each) for each in typing.get_args(kind))
    if origin is Annotated:
        return _can_be_text(typing.get_args(kind)[0])
    return kind in _TEXTS
