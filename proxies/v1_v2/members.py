"""Members of JSON objects, for the conversions between protocol versions 1 and 2. Pure.

All functions return new objects; members that a conversion does not know stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeAlias

__all__ = [
    "MAIN_PLAN",
    "Json",
    "each",
    "known",
    "objects",
    "renamed",
    "text_block",
    "without",
]

Json: TypeAlias = dict[str, Any]
MAIN_PLAN: Final = "main"
"""The id of the plan of version 1 (RFD v2 plan variants)."""


def renamed(value: Mapping[str, Any], names: Mapping[str, str]) -> Json:
    """The object with other names of members, in the same order."""
    return {names.get(name, name): member for name, member in value.items()}


def without(value: Mapping[str, Any], *names: str) -> Json:
    return {name: member for name, member in value.items() if name not in names}


def each(holder: Json, name: str, convert: Callable[[Json], Json | None]) -> Json:
    """The object with every object of the list `name` converted; those that become `None` are left
    out."""
    items = holder.get(name)
    if not isinstance(items, list):
        return holder
    found = [convert(item) if isinstance(item, dict) else item for item in items]
    return {**holder, name: [item for item in found if item is not None]}


def objects(items: Any) -> list[Json]:
    """The objects in a list; none if it is not a list."""
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def known(value: Any, names: Collection[str], default: Any) -> Any:
    """A value of an enumeration, or `default` for one that the other version does not have."""
    return value if isinstance(value, str) and value in names else default


def text_block(text: str) -> Json:
    return {"type": "text", "text": text}
