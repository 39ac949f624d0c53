"""Helpers to decode and encode values of any type: errors, numbers, lists with invalid items.

Types are checked; ranges and formats are not: the receiver decides about a negative line number.
Unknown enumeration values and unknown tags are valid, so leniency does not hide them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from conductor.errors import ConductorError

Read: TypeAlias = Callable[[Any], Any]
Write: TypeAlias = Callable[[Any], Any]


class SchemaError(ConductorError, ValueError):
    """A value has a type that the schema does not allow; `path` is its location.

    The text does not contain the value: it may be a secret.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[str | int] = []

    def under(self, step: str | int) -> SchemaError:
        self.path.insert(0, step)
        return self

    def __str__(self) -> str:
        steps = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in self.path)
        return f"{steps.removeprefix('.')}: {self.problem}" if steps else self.problem


class _Missing:
    """Placeholder for an absent member during reading."""


MISSING = _Missing()


class LiteralFloat(float):
    """A number with its original spelling: `1e400`, `1.10`, `-0`."""

    __slots__ = ("text",)
    text: str

    def __reduce__(self) -> tuple[Any, ...]:
        return (literal_float, (self.text,))


def literal_float(text: str) -> float:
    value = float(text)
    if "e" not in text and repr(value) == text:  # msgspec spells exponents differently
        return value
    kept = LiteralFloat(value)
    kept.text = text
    return kept


class Items(list[Any]):
    """A list without its invalid items, and their positions.

    `rejoined` inserts each after the item that preceded it, or after the nearest earlier item that
    is still in the list.
    """

    __slots__ = ("skipped",)
    skipped: list[tuple[int, list[Any], Any]]  # position, the items before, the invalid value

    def rejoined(self, write: Write | None) -> list[Any]:
        kept: dict[int, list[Any]] = {}
        for _, before, invalid in self.skipped:
            at = next((i for item in reversed(before) if (i := _index(self, item)) >= 0), -1)
            kept.setdefault(at, []).append(invalid)
        out = list(kept.get(-1, ()))
        for i, item in enumerate(self):
            out.append(write(item) if write else item)
            out += kept.get(i, ())
        return out


def _index(items: list[Any], wanted: Any) -> int:
    return next((i for i, item in enumerate(items) if item is wanted), -1)


def fail(value: Any, expected: str) -> SchemaError:
    match value:
        case _Missing():
            got = "nothing"
        case None:
            got = "null"
        case bool():
            got = "a boolean"
        case int() | float():
            got = "a number"
        case str():
            got = "a string"
        case list():
            got = "an array"
        case dict():
            got = "an object"
        case _:
            got = f"a Python {type(value).__name__}"
    return SchemaError(f"expected {expected}, got {got}")


def _read_int(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():  # JSON has one kind of number
        return int(value)
    raise fail(value, "integer")


def _read_float(value: Any) -> float:
    if type(value) is float or type(value) is int or type(value) is LiteralFloat:
        return value
    raise fail(value, "number")


def _exactly(kind: type, name: str) -> Read:
    def read(value: Any) -> Any:
        if type(value) is kind:
            return value
        raise fail(value, name)

    return read


def _read_any(value: Any) -> Any:
    if value is MISSING:
        raise fail(value, "a value")
    return value


SCALARS: dict[str, Read] = {
    "any": _read_any,
    "bool": _exactly(bool, "boolean"),
    "dict": _exactly(dict, "object"),
    "float": _read_float,
    "int": _read_int,
    "null": _exactly(type(None), "null"),
    "str": _exactly(str, "string"),
}


def list_reader(read: Read, spec: str, *, skip_invalid: bool) -> Read:
    scalar = spec in SCALARS

    def read_list(value: Any) -> Any:
        if type(value) is not list:
            raise fail(value, "array")
        try:
            items = [read(item) for item in value]
        except SchemaError:
            return _read_items(value, read, skip_invalid=skip_invalid)
        return value if scalar else items  # the same list, so that edits need no comparison

    return read_list


def _read_items(values: list[Any], read: Read, *, skip_invalid: bool) -> Items:
    items = Items()
    items.skipped = []
    for i, value in enumerate(values):
        try:
            items.append(read(value))
        except SchemaError as error:
            if not skip_invalid:
                raise error.under(i) from None
            items.skipped.append((i, list(items), value))
    return items


def map_reader(read: Read, spec: str) -> Read:
    scalar = spec in SCALARS or "|" in spec

    def read_map(value: Any) -> Any:
        if type(value) is not dict:
            raise fail(value, "object")
        items = {}
        for key, item in value.items():
            try:
                items[key] = read(item)
            except SchemaError as error:
                raise error.under(key) from None
        return value if scalar else items

    return read_map


def choice_reader(reads: list[Read], spec: str) -> Read:
    def read_choice(value: Any) -> Any:
        for read in reads:
            try:
                return read(value)
            except SchemaError:
                continue
        raise fail(value, spec.replace("|", " or "))

    return read_choice


def list_writer(write: Write | None) -> Write | None:
    if write is None:
        return None

    def write_list(value: Any) -> Any:
        if type(value) is Items:
            return value.rejoined(write)
        return [write(item) for item in value]

    return write_list


def map_writer(write: Write | None) -> Write | None:
    if write is None:
        return None
    return lambda value: {key: write(item) for key, item in value.items()}
