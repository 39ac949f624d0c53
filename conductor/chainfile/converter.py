"""The converter for chain files and for the options of proxies.

Input is data from `document`: None, strings, lists and mappings. The target type decides what a
scalar means: rules are pairs of a predicate for types and a function that makes the hook; the first
that fits is taken. `NewType`, `Final` and annotations without a meaning for chain files are looked
through. A hook raises `InvalidValue` with every issue it finds, so that all mistakes of a file are
reported together.

cattrs also dispatches by type, but it neither collects issues nor reads scalars by type: each hook
would be a function of `converter` in any case, and its import takes 8 ms of a start.
"""

from __future__ import annotations

import os
import types
from collections import abc
from collections.abc import Callable, Iterable
from datetime import timedelta
from enum import Enum
from pathlib import Path, PurePath
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NewType,
    TypeAlias,
    TypeGuard,
    Union,
    get_args,
    get_origin,
)

import attrs
import msgspec

from conductor.chainfile import values
from conductor.chainfile.diagnostics import (
    InvalidValue,
    UnsupportedType,
    ValueIssue,
    as_list,
    closest_match,
    collect,
    expected,
    invalid,
)
from conductor.chainfile.paths import absolute, home_is_unknown

__all__ = [
    "MAPPINGS",
    "SEQUENCES",
    "Converter",
    "Hook",
    "is_struct",
    "make_converter",
    "plain_type",
]

Hook: TypeAlias = Callable[[Any], Any]
"""Reads a value as a certain type; raises `InvalidValue`."""
_Rule: TypeAlias = tuple[Callable[[Any], bool], Callable[[Any], Hook]]


class Converter(msgspec.Struct, eq=False):
    """Hooks by type: the first rule that fits a type makes its hook when the type is first met."""

    rules: list[_Rule]
    directory: str = ""
    """Base of relative paths."""
    hooks: dict[Any, Hook] = {}

    def structure(self, value: Any, hint: Any) -> Any:
        """`value` as the type `hint`. Raises `InvalidValue` and `UnsupportedType`."""
        hook = self.hooks.get(hint) or self._make(hint)
        return hook(value)

    def _make(self, hint: Any) -> Hook:
        plain = plain_type(hint)
        for fits, hook_of in self.rules:
            if fits(plain):
                hook = self.hooks[hint] = hook_of(plain)
                return hook
        raise UnsupportedType(hint)


_TYPE_NAMES = {
    str: "text",
    bool: "`true` or `false`",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a mapping",
}
_DURATION = "a duration such as `500ms`, `10s` or `2m`"
SEQUENCES: dict[Any, Callable[[Iterable[Any]], Any]] = {
    **dict.fromkeys((list, abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection), list),
    tuple: tuple,
    **dict.fromkeys((set, abc.MutableSet), set),
    **dict.fromkeys((frozenset, abc.Set), frozenset),
}
MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)


def make_converter(directory: str) -> Converter:
    """A converter that resolves paths against `directory`. Rules and hooks of further types may be
    added to it."""

    def path(text: str) -> Path:
        if home_is_unknown(text):
            help = "write `./~…` for a file of this name"
            raise invalid("the home directory at the beginning of this path is unknown", help)
        return Path(absolute(directory, text))

    scalar_types: dict[Any, tuple[str, Callable[[str], Any]]] = {
        str: (_TYPE_NAMES[str], str),
        bool: (_TYPE_NAMES[bool], values.boolean),
        int: (_TYPE_NAMES[int], values.whole_number),
        float: (_TYPE_NAMES[float], values.number),
        timedelta: (_DURATION, lambda text: timedelta(seconds=values.seconds(text))),
        values.Seconds: (_DURATION, values.seconds),
        values.Bytes: ("a size such as `65536`, `64KiB` or `10MB`", values.byte_size),
        **dict.fromkeys((Path, PurePath, os.PathLike), ("a path", path)),
    }
    converter = Converter([], directory)
    converter.rules += [
        (lambda t: t in scalar_types, lambda t: _scalar_hook(*scalar_types[t])),
        (lambda t: t in (Any, object), lambda t: _as_it_is),
        (lambda t: t == values.Argv, lambda t: _argv_hook(converter)),
        (lambda t: _origin(t) in SEQUENCES, lambda t: _sequence_hook(t, converter)),
        (lambda t: _origin(t) in MAPPINGS, lambda t: _mapping_hook(t, converter)),
        (lambda t: _origin(t) in (Union, types.UnionType), lambda t: _union_hook(t, converter)),
        (lambda t: _origin(t) is Literal, lambda t: _choice_hook((v, v) for v in get_args(t))),
        (_is_enum, lambda t: _choice_hook((member.value, member) for member in t)),
    ]
    return converter


def plain_type(hint: Any) -> Any:
    """The type behind names for it, and without annotations that are not a `Unit`."""
    while True:
        if isinstance(hint, NewType):
            hint = hint.__supertype__
        elif get_origin(hint) is Annotated:
            unit = next((each for each in hint.__metadata__ if isinstance(each, values.Unit)), None)
            if unit is not None:
                return Annotated[hint.__origin__, unit]
            hint = hint.__origin__
        elif get_origin(hint) is Final:
            (hint,) = get_args(hint)
        else:
            return hint


def is_struct(hint: Any) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def _scalar_hook(wanted: str, read: Callable[[str], Any]) -> Hook:
    def hook(value: Any) -> Any:
        text = _text(value)
        if text is None:
            quoted = 'if the word itself is meant, write it in quotes: `"null"`'
            raise expected(wanted, quoted if value is None and read is str else None)
        try:
            return read(text)
        except (ValueError, OverflowError):
            raise expected(wanted) from None

    return hook


def _sequence_hook(hint: Any, converter: Converter) -> Hook:
    make, args = SEQUENCES[_origin(hint)], get_args(hint)
    fixed = make is tuple and bool(args) and args[-1] is not Ellipsis
    any_item = args[0] if args else Any

    def hook(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            empty = "for an empty list write `[]`" if value is None else None
            raise expected("a list", empty or (as_list if any_item in (str, Any) else None))
        if fixed and len(value) != len(args):
            raise invalid(f"expected {len(args)} items, found {len(value)}")
        found: list[ValueIssue] = []
        items = [
            collect(found, (i,), converter.structure, item, args[i] if fixed else any_item)
            for i, item in enumerate(value)
        ]
        if found:
            raise InvalidValue(found)
        return make(items)

    return hook


def _argv_hook(converter: Converter) -> Hook:
    def hook(value: Any) -> Any:
        if isinstance(value, str) and value.split() == [value]:
            return (value,)
        return converter.structure(value, tuple[str, ...])

    return hook


def _mapping_hook(hint: Any, converter: Converter) -> Hook:
    key_type, value_type = get_args(hint) or (str, Any)

    def hook(value: Any) -> Any:
        if not isinstance(value, abc.Mapping):
            help = "indent what belongs to it deeper; an empty mapping is `{}`"
            raise expected("a mapping", help if value is None else None)
        found: list[ValueIssue] = []
        items = {}
        for key, item in value.items():
            wrong: list[ValueIssue] = []
            name = collect(wrong, (), converter.structure, key, key_type)
            found += [
                ValueIssue(f"`{key}`: {each.message}", path=(key,), at_key=True) for each in wrong
            ]
            items[name] = collect(found, (key,), converter.structure, item, value_type)
        if found:
            raise InvalidValue(found)
        return items

    return hook


def _union_hook(hint: Any, converter: Converter) -> Hook:
    optional = type(None) in get_args(hint)
    # Text is tried last: every scalar can be read as text.
    members = sorted((t for t in get_args(hint) if t is not type(None)), key=lambda t: t is str)

    def hook(value: Any) -> Any:
        if value is None and optional:
            return None
        fitting = [t for t in members if _shape(t) in (None, _shape_of(value))]
        if len(fitting) == 1 or len(members) == 1:
            (member,) = fitting or members
            return converter.structure(value, member)
        found: list[ValueIssue] = []
        for member in fitting:
            wrong: list[ValueIssue] = []
            result = collect(wrong, (), converter.structure, value, member)
            if not wrong:
                return result
            found += wrong
        wanted = [each.message.removeprefix("expected ") for each in found if not each.path]
        raise expected(" or ".join(wanted or [_name(t) for t in members]))

    return hook


def _choice_hook(choices: Iterable[tuple[Any, Any]]) -> Hook:
    known = {_text(value) or "null": result for value, result in choices}
    names = [f"`{name}`" for name in known]
    wanted = " or ".join(names) if len(names) < 3 else f"one of {', '.join(names)}"

    def hook(value: Any) -> Any:
        text = _text(value)
        if text in known:
            return known[text]
        raise expected(wanted, suggest)

    def suggest(written: str) -> str | None:
        meant = closest_match(written, known)
        return f"did you mean `{meant}`?" if meant else None

    return hook


def _as_it_is(value: Any) -> Any:
    return value


def _origin(hint: Any) -> Any:
    return get_origin(hint) or hint


def _is_enum(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Enum)


def _shape(hint: Any) -> type | None:
    """The kind of data that a type is read from: list, dict or str; None if any."""
    origin = _origin(hint)
    if origin in SEQUENCES:
        return list
    if origin in MAPPINGS or is_struct(origin) or (isinstance(origin, type) and attrs.has(origin)):
        return dict
    return None if hint in (Any, object) or origin in (Union, types.UnionType) else str


def _shape_of(value: Any) -> type:
    if isinstance(value, abc.Mapping):
        return dict
    return list if isinstance(value, list | tuple) else str


def _text(value: Any) -> str | None:
    """A scalar as text; programs that embed the conductor may give Python values."""
    match value:
        case str():
            return value
        case bool():
            return str(value).lower()
        case int() | float() | PurePath():
            return str(value)
        case _:
            return None


def _name(hint: Any) -> str:
    return _TYPE_NAMES.get(hint) or _TYPE_NAMES[_shape(hint) or str]
