"""Structure the options of a component (`with:`) as an instance of its plugin class.

The types of the class's fields decide how options are read; its validators check them. The
component comes from a chain file or from the command line. Each field is read, validated and
reported separately, so that one mistake does not hide another: attrs does not tell which converter
or validator made `__init__` raise, so they are run again, one by one, on an instance that was not
initialized.
"""

from __future__ import annotations

import keyword
import sys
from collections.abc import Mapping
from functools import lru_cache
from inspect import get_annotations
from types import SimpleNamespace
from typing import Any, get_type_hints

import attrs
import msgspec

from conductor.chainfile.converter import Converter, Hook, make_converter
from conductor.chainfile.diagnostics import (
    INVALID,
    Diagnostic,
    InvalidValue,
    SourceLocation,
    ValueContext,
    ValueIssue,
    collect,
    in_file_order,
    path_label,
    to_diagnostic,
)
from conductor.chainfile.keys import read_keys
from conductor.chainfile.model import ComponentSpec
from conductor.chainfile.paths import working_directory
from conductor.errors import ChainFileError, describe, line_in

__all__ = ["field_key", "field_types", "structure"]

_FACTORY: Any = attrs.Factory  # a class, which the stubs call a function


def structure(component: ComponentSpec, cls: Any) -> Any:
    """See `conductor.chainfile.structure_options`."""
    hook = _hook(cls, component.directory or working_directory())
    try:
        return hook(dict(component.options))
    except InvalidValue as mistakes:
        values = _values(component)
        diagnostics = [_problem(found.below("with"), component, values) for found in mistakes.found]
    raise ChainFileError(in_file_order(diagnostics))


def field_types(cls: Any) -> dict[str, Any]:
    """The types of the fields by key. Raises `TypeError` if an annotation cannot be resolved."""
    return {field_key(each): _type_of(cls, each) for each in attrs.fields(cls) if each.init}


def field_key(field: Any) -> str:
    """The key of a field: its alias, without the `_` of a Python keyword (`with_` is `with`)."""
    word: str = field.alias.removesuffix("_")
    return word if keyword.iskeyword(word) else field.alias


@lru_cache(maxsize=64)
def _hook(cls: type, directory: str) -> Hook:
    """Cached: creating it takes 0.1 ms, and `serve` creates an instance for every client."""
    return _attrs_hook(cls, _converter(directory))


@lru_cache(maxsize=16)
def _converter(directory: str) -> Converter:
    """Cached: creating it takes 0.4 ms."""
    converter = make_converter(directory)
    converter.rules.append(
        (lambda t: isinstance(t, type) and attrs.has(t), lambda t: _attrs_hook(t, converter))
    )
    return converter


def _values(component: ComponentSpec) -> ValueContext:
    fallback = component.location or SourceLocation.whole("<command line>")
    # Issues of the options as a whole are located at `use:`.
    whole = component.locations.get(("use",), fallback)
    return ValueContext(
        data={"with": component.options},
        locations={**component.locations, ("with",): whole},
        keys=component.key_locations,
        written=component.written,
        fallback=fallback,
    )


def _problem(mistake: ValueIssue, component: ComponentSpec, values: ValueContext) -> Diagnostic:
    problem = to_diagnostic(mistake, values, path_label(mistake.path[1:]))
    if component.location is None:
        return msgspec.structs.replace(problem, message=f"{component.name}: {problem.message}")
    return problem


def _attrs_hook(cls: Any, converter: Converter) -> Hook:
    """A hook for `cls`. Raises `TypeError` if an annotation of the class cannot be resolved."""
    fields = {field_key(field): field for field in attrs.fields(cls) if field.init}
    types = field_types(cls)

    def hook(data: Any) -> Any:
        found: list[ValueIssue] = []
        values = read_keys(data, types, converter, "option", {}, found)
        given = {fields[key].alias: value for key, value in values.items() if value is not INVALID}
        for key, field in fields.items():
            if key not in data and field.default is attrs.NOTHING:
                found.append(ValueIssue(f"the option `{key}` is missing"))
        if found:
            raise InvalidValue(found + _field_issues(cls, given))
        instance = collect(found, (), _construct, cls, given)
        if found:
            raise InvalidValue(_field_issues(cls, given) or found)
        return instance

    return hook


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
    """The type of a field, resolved alone: other annotations may only exist for type checkers.
    Raises `TypeError` if it cannot be resolved."""
    if field.type is None:
        return Any
    owner = next((each for each in cls.__mro__ if field.name in get_annotations(each)), cls)
    module = sys.modules.get(owner.__module__)
    holder = SimpleNamespace(__annotations__={field.name: field.type})
    names = vars(module) if module else {}
    try:
        return get_type_hints(holder, globalns=names, include_extras=True)[field.name]
    except NameError as error:
        raise TypeError(
            f"{cls.__name__}.{field.name}: the annotation {field.type!r} cannot be resolved"
            f" ({error}); import its types at run time"
        ) from error
