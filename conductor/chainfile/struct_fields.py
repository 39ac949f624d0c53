"""Structure a mapping as an instance of a `msgspec.Struct` of the grammar; its fields are the keys.

Validators are in the annotation of a field: `Annotated[str | None, component_name]`. They are
called with the instance, None and the value, as those of attrs, but only for the keys that are
given; a value that could not be read is `INVALID` in the instance. Each field is read, validated
and reported separately, as in `attrs_fields`, which does the same for the options of plugins: a
Struct is defined in a tenth of the time of an attrs class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard, get_origin

import msgspec

from conductor.chainfile.attrs_fields import meant_key, read_keys, resolved_annotation
from conductor.chainfile.type_dispatch import Converter, Hook
from conductor.chainfile.value_errors import INVALID, InvalidValue, ValueIssue, collect

__all__ = ["is_struct", "struct_hook"]


def is_struct(hint: Any) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def struct_hook(
    cls: type[msgspec.Struct], converter: Converter, hints: Mapping[str, str] = {}
) -> Hook:
    """A hook for `cls`. `hints` maps unknown keys that users are likely to write to their help."""
    fields = dict(zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True))
    types: dict[str, Any] = dict.fromkeys(fields)
    """Types of keys that occur in the file: resolving all of them takes a millisecond of a
    start."""

    def hook(data: Any) -> Any:
        for written in data if isinstance(data, Mapping) else ():
            key = written if written in types else meant_key(written, types, data)
            if key is not None and types[key] is None:
                types[key] = resolved_annotation(cls, fields[key])
        found: list[ValueIssue] = []
        given = read_keys(data, types, converter, "key", hints, found)
        instance = cls(**{fields[key]: value for key, value in given.items()})
        for key, value in given.items():
            if value is not INVALID and key in data:  # a misspelt one has been reported
                for validate in _validators(types[key]):
                    collect(found, (key,), validate, instance, None, value)
        if found:
            raise InvalidValue(found)
        return instance

    return hook


def _validators(hint: Any) -> list[Any]:
    metadata = getattr(hint, "__metadata__", ()) if get_origin(hint) is not None else ()
    return [each for each in metadata if callable(each)]
