"""Issues found in values, and their conversion to diagnostics.

Structure hooks know a value but not its location. They raise `InvalidValue`; each enclosing level
adds its key or index to the path of the issues. `to_diagnostic` looks up the location. Values are
quoted only here, and only as *written*: the value of a variable never appears in a diagnostic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import msgspec

from conductor.chainfile.diagnostics import (
    Diagnostic,
    InterpolatedString,
    SourceLocation,
    ValuePath,
)
from conductor.errors import describe

__all__ = [
    "INVALID",
    "InvalidValue",
    "UnsupportedType",
    "ValueContext",
    "ValueIssue",
    "as_list",
    "collect",
    "expected",
    "invalid",
    "path_label",
    "to_diagnostic",
]

INVALID: Any = object()
"""Returned by `collect` for a value that could not be read."""


class ValueIssue(msgspec.Struct, frozen=True):
    """One mistake in the value at `path`, relative to the value that raised it."""

    message: str
    help: str | Callable[[str], str | None] | None = None
    """Text, or a function of the value as written."""
    path: ValuePath = ()
    quote: bool = False
    """Whether the message ends with the value that was found."""
    at_key: bool = False
    """Whether the key is wrong, not its value."""
    foreign: bool = False
    """Whether the message is from a plugin's validator and may quote the value."""
    note: tuple[ValuePath, str] | None = None
    """The path of a related key, and how it is related."""

    def below(self, *path: str | int) -> ValueIssue:
        note = ((*path, *self.note[0]), self.note[1]) if self.note else None
        return msgspec.structs.replace(self, path=(*path, *self.path), note=note)


class InvalidValue(Exception):
    """Raised with all issues of one value."""

    def __init__(self, found: list[ValueIssue]) -> None:
        super().__init__(found)
        self.found = found


class UnsupportedType(TypeError):
    """Values of a type, that of an option of a plugin, cannot be read from chain files."""

    def __init__(self, hint: Any) -> None:
        super().__init__(f"a value of type {getattr(hint, '__name__', hint)} cannot be given here")


def invalid(message: str, help: str | Callable[[str], str | None] | None = None) -> InvalidValue:
    return InvalidValue([ValueIssue(message, help)])


def expected(wanted: str, help: str | Callable[[str], str | None] | None = None) -> InvalidValue:
    """The error for a value that is not `wanted`; its message quotes the value."""
    return InvalidValue([ValueIssue(f"expected {wanted}", help, quote=True)])


def collect(
    found: list[ValueIssue], where: ValuePath, function: Callable[..., Any], *args: Any
) -> Any:
    """Call `function`; add the issues it raises to `found`, below `where`, and return `INVALID`."""
    try:
        return function(*args)
    except InvalidValue as mistakes:
        found += [each.below(*where) for each in mistakes.found]
    except UnsupportedType as error:
        found.append(ValueIssue(str(error), path=where))
    except Exception as error:  # converters and validators may be a plugin's
        found.append(ValueIssue(_error_text(error), path=where, foreign=True))
    return INVALID


def _error_text(error: Exception) -> str:
    """Message of an exception; attrs validators raise with the message as first argument."""
    if isinstance(error, ValueError | TypeError) and not isinstance(error, UnicodeError):
        match error.args:
            case (str(message), *_):
                return message
    return describe(error)


def as_list(written: str) -> str:
    """Help text for a string in place of a list."""
    import shlex

    try:
        words = shlex.split(written)
    except ValueError:
        words = written.split()
    items = (word if _is_plain_scalar(word) else _quoted(word) for word in words)
    return f"write a list: `[{', '.join(items)}]`"


def _is_plain_scalar(word: str) -> bool:
    return word.replace("-", "").replace("_", "").replace("/", "").replace(".", "").isalnum()


def _quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class ValueContext(msgspec.Struct, frozen=True):
    """The data in which issues were found, with source locations."""

    data: Any
    locations: Mapping[ValuePath, SourceLocation]
    keys: Mapping[ValuePath, SourceLocation]
    written: Mapping[ValuePath, InterpolatedString]
    fallback: SourceLocation
    """Location of values that have none."""

    def location(self, path: ValuePath, *, at_key: bool = False) -> SourceLocation:
        """The location of a value or, if it has none, of the nearest enclosing value."""
        if at_key and path in self.keys:
            return self.keys[path]
        while path:
            if path in self.locations:
                return self.locations[path]
            path = path[:-1]
        return self.locations.get((), self.fallback)

    def value(self, path: ValuePath) -> Any:
        return reduce(lambda value, key: value[key], path, self.data)

    def text(self, path: ValuePath) -> str:
        """The string at `path` as written."""
        return self.written[path].text if path in self.written else str(self.value(path))

    def found(self, path: ValuePath) -> str:
        """Description of the value at `path`, for `found …`."""
        match self.value(path):
            case None:
                return "nothing"
            case list() | tuple():
                return "a list"
            case Mapping():
                return "a mapping"
            case _:
                return f"`{self.text(path)}`"

    def without_secrets(self, text: str, path: ValuePath) -> str:
        """`text`, which may quote the value at `path`, with references in place of their values."""
        shown: dict[str, str] = {}
        for where, written in self.written.items():
            if where[: len(path)] == path[: len(where)]:
                for value in (str(self.value(where)), *written.values):
                    shown.update(dict.fromkeys(map(str.lower, _printed_forms(value)), written.text))
        forms = sorted(shown, key=len, reverse=True)
        if not forms:
            return text
        secret = re.compile("|".join(map(re.escape, forms)), re.IGNORECASE)
        return secret.sub(lambda found: shown.get(found[0].lower(), "…"), text)


def to_diagnostic(invalid: ValueIssue, values: ValueContext, label: str) -> Diagnostic:
    """Convert an issue to a diagnostic; `label` is the name of the value in the message."""
    message, help, note = invalid.message, invalid.help, invalid.note
    if invalid.foreign:
        message = values.without_secrets(message, invalid.path)
    if invalid.quote:
        message += f", found {values.found(invalid.path)}"
    if label and not invalid.at_key:
        message = f"{label}: {message}"
    if callable(help):
        is_text = isinstance(values.value(invalid.path), str)
        help = help(values.text(invalid.path)) if is_text else None
    return Diagnostic(
        location=values.location(invalid.path, at_key=invalid.at_key),
        message=message,
        note=(values.location(note[0], at_key=True), note[1]) if note else None,
        help=help,
    )


def path_label(path: ValuePath) -> str:
    """`limits.max_message_bytes`, `run[1]`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def _printed_forms(value: str) -> set[str]:
    """Forms in which a validator's message may show a value."""
    forms = {value, value.strip(), repr(value)[1:-1]}
    for kind in (int, float):
        try:
            forms.add(str(kind(value)))
        except (ValueError, OverflowError):
            continue
    return forms - {""}
