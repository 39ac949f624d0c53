"""Declarations of keys, and the reader of a mapping with these keys.

A key is a field of a `msgspec.Struct`: its name, type, default and docstring are those of the key.
What else is known of it stands in its annotation: a `Unit` for its notation, validators, and one
`Key`: `Annotated[Seconds, positive, Key(wrapped=True)]`. Reader, conflicts, JSON schema, `show`,
`wrap` and the bootstrap of isolated plugins iterate these declarations.

A validator is called with the value of a key that is given and could be read. Each key is read,
validated and reported separately, as in `options`, which does the same for the options of
plugins: a Struct is defined in a tenth of the time of an attrs class.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, get_origin, get_type_hints

import msgspec

from conductor.chainfile.converter import Converter, Hook
from conductor.chainfile.diagnostics import (
    INVALID,
    InvalidValue,
    ValueIssue,
    closest_match,
    collect,
    expected,
)
from conductor.chainfile.values import Bytes, positive
from conductor.limits import Limits

__all__ = [
    "COMPONENT_KINDS",
    "Key",
    "declaration",
    "field_type",
    "key_names",
    "read_keys",
    "read_struct",
    "struct_hook",
    "types_as_written",
]

COMPONENT_KINDS: Final = ("run", "use", "registry", "connect", "unix", "chain")
_BUT_CHAINS: Final = frozenset({*COMPONENT_KINDS, "ssh"} - {"chain"})


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of a key besides its type, default and docstring."""

    kinds: frozenset[str] = _BUT_CHAINS
    """Kinds of component that may have it; `ssh` is `run` on another machine."""
    written: Any = None
    """Its type in the file, if it differs from that of the field."""
    convert: Callable[[Any, str], Any] | None = None
    """From the value as written, and the directory of the file, to that of the field. A path
    becomes absolute in this way."""
    secret: bool = False
    """Whether `show` masks its values."""
    shown: bool | None = None
    """Whether `show` shows it; None: if it differs from the default."""
    wrapped: bool = False
    """Whether the agent of `wrap` inherits it from the agent of the file."""
    isolated: bool = False
    """Whether the process of an isolated plugin gets it."""
    merged: bool = False
    """Whether its members in the user's or the project's file replace those of another file."""


_PLAIN: Final = Key()
_MAX_LISTED: Final = 8


@lru_cache(maxsize=16)
def key_names(cls: type[msgspec.Struct]) -> dict[str, str]:
    """The names of the fields by key (`options` by `with`)."""
    return dict(zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True))


@lru_cache(maxsize=16)
def _types(cls: type[msgspec.Struct]) -> dict[str, Any]:
    """The types of the fields by key, with what is declared."""
    if cls is Limits:  # which is not read from chain files alone
        types = {True: Annotated[Bytes, positive], False: Annotated[int, positive]}
        return {key: types[key.endswith("_bytes")] for key in key_names(cls)}
    names = vars(sys.modules[cls.__module__])  # by default, lambdas would see those of the class
    hints = get_type_hints(cls, names, include_extras=True)
    return {key: hints[name] for key, name in key_names(cls).items()}


def field_type(cls: type[msgspec.Struct], key: str) -> Any:
    """The type of the field of a key, with what is declared."""
    return _types(cls)[key]


@lru_cache(maxsize=16)
def types_as_written(cls: type[msgspec.Struct]) -> dict[str, Any]:
    """The types of the keys in the file."""
    return {key: declaration(cls, key).written or hint for key, hint in _types(cls).items()}


def declaration(cls: type[msgspec.Struct], key: str) -> Key:
    return next((each for each in _metadata(cls, key) if isinstance(each, Key)), _PLAIN)


def _metadata(cls: type[msgspec.Struct], key: str) -> tuple[Any, ...]:
    hint = field_type(cls, key)
    return hint.__metadata__ if get_origin(hint) is Annotated else ()


def read_struct(
    data: Any,
    cls: type[msgspec.Struct],
    converter: Converter,
    hints: Mapping[str, str] = {},
) -> dict[str, Any]:
    """The values of the keys that are given, by field, as the fields have them. `hints` maps
    unknown keys that users are likely to write to their help. Raises `InvalidValue`."""
    fields = key_names(cls)
    found: list[ValueIssue] = []
    given = read_keys(data, types_as_written(cls), converter, "key", hints, found)
    values = {fields[key]: value for key, value in given.items()}
    for key, value in given.items():
        # A misspelt one has been reported.
        if value is not None and value is not INVALID and key in data:
            for validate in _metadata(cls, key):
                if callable(validate):
                    collect(found, (key,), validate, value)
    if found:
        raise InvalidValue(found)
    for key, value in given.items():
        convert = declaration(cls, key).convert
        if convert is not None and value is not None:
            values[fields[key]] = convert(value, converter.directory)
    return values


def struct_hook(cls: type[msgspec.Struct], converter: Converter) -> Hook:
    """A hook that reads a mapping as an instance of `cls`."""
    return lambda data: cls(**read_struct(data, cls, converter))


def read_keys(
    data: Any,
    types: Mapping[str, Any],
    converter: Converter,
    word: str,
    hints: Mapping[str, str],
    found: list[ValueIssue],
) -> dict[str, Any]:
    """Read the values of a mapping with keys of these types; `INVALID` stands for one that cannot
    be read. The value of a misspelt key is read as that of the key which is suggested. Issues are
    added to `found`. Raises `InvalidValue` for no mapping."""
    if not isinstance(data, Mapping):
        raise expected("a mapping")
    values: dict[str, Any] = {}
    for key, value in data.items():
        meant = key
        if key not in types:
            help = hints.get(key) or _unknown_key_help(key, types, word)
            found.append(ValueIssue(f"unknown {word} `{key}`", help, path=(key,), at_key=True))
            closest = closest_match(key, types)
            meant = None if key in hints or closest in data else closest
        if meant is not None:
            values[meant] = collect(found, (key,), converter.structure, value, types[meant])
    return values


def _unknown_key_help(key: str, fields: Mapping[str, Any], word: str) -> str:
    meant = closest_match(key, fields)
    if meant:
        return f"did you mean `{meant}`?"
    if not fields:
        return f"there are no {word}s"
    if key == "args" and "command" in fields:  # as in other configurations of MCP servers
        return "write the arguments into `command`: `[PROGRAM, ARGUMENT, …]`"
    names = [f"`{name}`" for name in fields]
    listed = ", ".join(names[:_MAX_LISTED]) + (", …" if len(names) > _MAX_LISTED else "")
    return f"the {word}s are {listed}"
