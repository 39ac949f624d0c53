"""Structure a mapping as an instance of an attrs class; its fields are the keys.

Each field is read, validated and reported separately, so that one mistake does not hide another.
attrs does not tell which converter or validator made `__init__` raise. To find out, they are run
again, one by one, on an instance that was not initialized.
"""

from __future__ import annotations

import inspect
import keyword
import sys
import typing
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import attrs

from conductor.chainfile.diagnostics import closest_match
from conductor.chainfile.type_dispatch import Converter, Hook
from conductor.chainfile.value_errors import INVALID, InvalidValue, ValueIssue, collect, expected
from conductor.errors import describe, line_in

__all__ = ["attrs_hook", "field_key", "field_types", "read_keys", "resolved_annotation"]

_MAX_LISTED = 8
_FACTORY: Any = attrs.Factory  # a class, which the stubs call a function


def attrs_hook(cls: Any, converter: Converter, word: str) -> Hook:
    """A hook for `cls`; messages call a key `word`.

    Raises `TypeError` if an annotation of the class cannot be resolved.
    """
    fields = {field_key(field): field for field in attrs.fields(cls) if field.init}
    types = field_types(cls)

    def hook(data: Any) -> Any:
        found: list[ValueIssue] = []
        values = read_keys(data, types, types.__getitem__, converter, word, {}, found)
        given = {fields[key].alias: value for key, value in values.items() if value is not INVALID}
        for key, field in fields.items():
            if key not in data and field.default is attrs.NOTHING:
                found.append(ValueIssue(f"the {word} `{key}` is missing"))
        if found:
            raise InvalidValue(found + _field_issues(cls, given))
        instance = collect(found, (), _construct, cls, given)
        if found:
            raise InvalidValue(_field_issues(cls, given) or found)
        return instance

    return hook


def read_keys(
    data: Any,
    known: Mapping[str, Any],
    type_of: Callable[[str], Any],
    converter: Converter,
    word: str,
    hints: Mapping[str, str],
    found: list[ValueIssue],
) -> dict[str, Any]:
    """Read the values of the known keys of a mapping, each as its `type_of`, which is asked for the
    given keys only; `INVALID` stands for one that cannot be read. The value of a misspelt key is
    read as that of the key which is suggested. Issues are added to `found`. Raises `InvalidValue`
    for no mapping."""
    if not isinstance(data, Mapping):
        raise expected("a mapping")
    values: dict[str, Any] = {}
    for key, value in data.items():
        meant = key
        if key not in known:
            help = hints.get(key) or unknown_key_help(key, known, word)
            found.append(ValueIssue(f"unknown {word} `{key}`", help, path=(key,), at_key=True))
            closest = closest_match(key, known)
            meant = None if key in hints or closest in data else closest
        if meant is not None:
            values[meant] = collect(found, (key,), converter.structure, value, type_of(meant))
    return values


def _construct(cls: Any, given: Mapping[str, Any]) -> Any:
    """An instance. `ValueError` and `TypeError` are about the values; any other exception is a
    failure of the class's own code, and told with its line."""
    try:
        return cls(**given)
    except (ValueError, TypeError, InvalidValue):
        raise
    except Exception as exc:
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
        raise InvalidValue(
            [ValueIssue(f"{describe(exc)}{line_in(file, exc)}", foreign=True)]
        ) from exc


def field_types(cls: Any) -> dict[str, Any]:
    """The types of the fields by key. Raises `TypeError` if an annotation cannot be resolved."""
    return {field_key(each): _type_of(cls, each) for each in attrs.fields(cls) if each.init}


def field_key(field: Any) -> str:
    """The key of a field: its alias, without the `_` of a Python keyword (`with_` is `with`)."""
    word: str = field.alias.removesuffix("_")
    return word if keyword.iskeyword(word) else field.alias


def unknown_key_help(key: str, fields: Mapping[str, Any], word: str) -> str:
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


def _field_issues(cls: Any, given: Mapping[str, Any]) -> list[ValueIssue]:
    """Issues raised by the converters and validators of single fields, for the given values."""
    found: list[ValueIssue] = []
    probe = object.__new__(cls)
    for field in attrs.fields(cls):
        value: Any = given.get(field.alias, field.default)
        if isinstance(value, _FACTORY):
            value = attrs.NOTHING if value.takes_self else value.factory()
        if value is attrs.NOTHING:
            continue
        if field.converter is not None:
            value = collect(found, (field_key(field),), _convert, field, value, probe)
        if value is not INVALID:
            object.__setattr__(probe, field.name, value)
    for field in attrs.fields(cls):
        if field.validator and field.alias in given and hasattr(probe, field.name):
            value = getattr(probe, field.name)
            collect(found, (field_key(field),), _validate, field, value, probe)
    return found


def _convert(field: Any, value: Any, probe: Any) -> Any:
    converter: Any = field.converter
    if not hasattr(converter, "takes_self"):
        return converter(value)
    more = [probe] * converter.takes_self + [field] * converter.takes_field
    return converter.converter(value, *more)


def _validate(field: Any, value: Any, probe: Any) -> None:
    try:
        field.validator(probe, field, value)
    except AttributeError:
        # The validator reads another field, which could not be read and is reported.
        return


def _type_of(cls: Any, field: Any) -> Any:
    """The type of a field, resolved alone: other annotations may only exist for type checkers."""
    return Any if field.type is None else resolved_annotation(cls, field.name, field.type)


def resolved_annotation(cls: Any, name: str, annotation: Any = None) -> Any:
    """The type that the annotation of a field stands for, by default the one in the class or its
    bases. Raises `TypeError` if it cannot be resolved."""
    owners = (base for base in cls.__mro__ if name in inspect.get_annotations(base))
    owner = next(owners, cls)
    module = sys.modules.get(owner.__module__)
    if annotation is None:
        annotation = inspect.get_annotations(owner)[name]
    holder = SimpleNamespace(__annotations__={name: annotation})
    try:
        resolved = typing.get_type_hints(
            holder, globalns=vars(module) if module else {}, include_extras=True
        )
    except NameError as error:
        raise TypeError(
            f"{cls.__name__}.{name}: the annotation {annotation!r} cannot be resolved"
            f" ({error}); import its types at run time"
        ) from error
    return resolved[name]
