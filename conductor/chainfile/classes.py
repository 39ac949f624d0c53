"""From a mapping to an instance of an attrs class: the fields are the keys.

Every field is read, validated and reported on its own, so that one mistake does not hide another.
attrs says only *that* `__init__` raised; to find out which field's converter or validator it was,
they are run again, one by one, on an instance that was not initialised.
"""

from __future__ import annotations

import inspect
import keyword
import sys
import typing
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import attrs
import cattrs

from conductor.chainfile.mistakes import MISTAKEN, Mistake, Mistakes, collect, expected
from conductor.chainfile.problems import closest

__all__ = ["class_hook", "key_of"]

_FEW = 8
_FACTORY: Any = attrs.Factory  # a class, which the stubs call a function


def class_hook(
    cls: Any, made: cattrs.Converter, word: str, hints: Mapping[str, str] = {}
) -> typing.Callable[[Any, Any], Any]:
    """A cattrs hook for `cls`, which calls a key `word`.

    `hints` is the help for keys that people may write although there are none of that name.
    Raises `TypeError` if an annotation of the class cannot be resolved.
    """
    fields = {key_of(field): field for field in attrs.fields(cls) if field.init}
    types = {key: _type_of(cls, field) for key, field in fields.items()}

    def hook(data: Any, _: Any) -> Any:
        if not isinstance(data, Mapping):
            raise expected("a mapping")
        found: list[Mistake] = []
        given: dict[str, Any] = {}
        for key, value in data.items():
            if key not in fields:
                help = hints.get(key) or _known(key, fields, word)
                found.append(Mistake(f"unknown {word} `{key}`", help, path=(key,), at_key=True))
                continue
            result = collect(found, (key,), made.structure, value, types[key])
            if result is not MISTAKEN:
                given[fields[key].alias] = result
        for key, field in fields.items():
            if key not in data and field.default is attrs.NOTHING:
                found.append(Mistake(f"the {word} `{key}` is missing"))
        if found:
            raise Mistakes(found + _field_mistakes(cls, given))
        instance = collect(found, (), lambda: cls(**given))
        if found:
            raise Mistakes(_field_mistakes(cls, given) or found)
        return instance

    return hook


def key_of(field: Any) -> str:
    """The key for a field: its alias; for `with_` it is `with`, which Python reserves."""
    word: str = field.alias.removesuffix("_")
    return word if keyword.iskeyword(word) else field.alias


def _known(key: str, fields: Mapping[str, Any], word: str) -> str:
    meant = closest(key, fields)
    if meant:
        return f"did you mean `{meant}`?"
    if not fields:
        return f"there are no {word}s"
    names = [f"`{name}`" for name in fields]
    listed = ", ".join(names[:_FEW]) + (", …" if len(names) > _FEW else "")
    return f"the {word}s are {listed}"


def _field_mistakes(cls: Any, given: Mapping[str, Any]) -> list[Mistake]:
    """What the converters and validators of single fields have against the given values."""
    found: list[Mistake] = []
    probe = object.__new__(cls)
    for field in attrs.fields(cls):
        value: Any = given.get(field.alias, field.default)
        if isinstance(value, _FACTORY):
            value = attrs.NOTHING if value.takes_self else value.factory()
        if value is attrs.NOTHING:
            continue
        if field.converter is not None:
            value = collect(found, (key_of(field),), _convert, field, value, probe)
        if value is not MISTAKEN:
            object.__setattr__(probe, field.name, value)
    for field in attrs.fields(cls):
        if field.validator and field.alias in given and hasattr(probe, field.name):
            value = getattr(probe, field.name)
            collect(found, (key_of(field),), _validate, field, value, probe)
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
        # It looks at a field that could not be read, which is reported.
        return


def _type_of(cls: Any, field: Any) -> Any:
    """The type of a field, resolved alone: others may name types that only a type checker sees."""
    if field.type is None:
        return Any
    owners = (base for base in cls.__mro__ if field.name in inspect.get_annotations(base))
    owner = next(owners, cls)
    module = sys.modules.get(owner.__module__)
    holder = SimpleNamespace(__annotations__={field.name: field.type})
    try:
        resolved = typing.get_type_hints(
            holder, globalns=vars(module) if module else {}, include_extras=True
        )
    except NameError as error:
        raise TypeError(
            f"{cls.__name__}.{field.name}: the annotation {field.type!r} cannot be resolved"
            f" ({error}); import its types at run time"
        ) from error
    return resolved[field.name]
