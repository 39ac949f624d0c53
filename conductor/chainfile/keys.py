"""Declarations of keys, and the reader of a mapping with these keys.

A key is a field of a `msgspec.Struct`: its name, type, default and docstring are those of the key.
What else is known of it stands in its annotation: a `Unit` for its notation, validators, and one
`Key`: `Annotated[Seconds, positive, Key(wrapped=True)]`. Reader, conflicts, JSON schema, `show`,
`wrap` and the bootstrap of isolated plugins iterate these declarations.

A validator is called with the value of a key that is given and could be read. Each key is read,
validated and reported separately, as in `attrs_fields`, which does the same for the options of
plugins: a Struct is defined in a tenth of the time of an attrs class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Annotated, Any, Final, TypeGuard, get_origin

import msgspec

from conductor.chainfile.attrs_fields import read_keys, resolved_annotation
from conductor.chainfile.scalars import Bytes
from conductor.chainfile.type_dispatch import Converter, Hook
from conductor.chainfile.validators import positive
from conductor.chainfile.value_errors import INVALID, InvalidValue, ValueIssue, collect
from conductor.limits import Limits

__all__ = [
    "COMPONENT_KINDS",
    "Key",
    "declaration",
    "field_type",
    "is_struct",
    "key_names",
    "read_struct",
    "struct_hook",
    "type_as_written",
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


def is_struct(hint: Any) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


@lru_cache(maxsize=16)
def key_names(cls: type[msgspec.Struct]) -> dict[str, str]:
    """The names of the fields by key (`options` by `with`)."""
    return dict(zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True))


@lru_cache(maxsize=256)  # resolved one by one: all of them would take a millisecond of a start
def field_type(cls: type[msgspec.Struct], key: str) -> Any:
    """The type of the field of a key, with what is declared."""
    if cls is Limits:  # which is not read from chain files alone
        return Annotated[Bytes if key.endswith("_bytes") else int, positive]
    return resolved_annotation(cls, key_names(cls)[key])


def declaration(cls: type[msgspec.Struct], key: str) -> Key:
    return next((each for each in _metadata(cls, key) if isinstance(each, Key)), _PLAIN)


def type_as_written(cls: type[msgspec.Struct], key: str) -> Any:
    """The type of a key in the file."""
    return declaration(cls, key).written or field_type(cls, key)


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
    type_of = partial(type_as_written, cls)
    given = read_keys(data, fields, type_of, converter, "key", hints, found)
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
