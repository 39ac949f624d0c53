"""Options given as arguments: `--names '["a", "b"]'` of a program, `--with names=…` of `try`."""

from __future__ import annotations

import json
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Final

import attrs

from conductor.chainfile.attrs_fields import field_types

__all__ = ["option_of_argument"]

_TEXTS: Final = (str, Path, Any)


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
