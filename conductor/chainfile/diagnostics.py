"""Diagnostics of chain files, printed as plain text in the style of rustc and elm.

    chain.yaml:3:5: error: unknown key `rnu`
       |   - rnu: [notes]
       |     ^^^
    help: did you mean `run`?

A location includes the line as written, so that a diagnostic can be printed after the file was
read; the value of `${VAR}` never appears. The location of a value of several lines is in its first
line.

Structure hooks know a value but not its location. They raise `InvalidValue`; each enclosing level
adds its key or index to the path of the issues. `to_diagnostic` looks up the location. Values are
quoted only there, and only as *written*.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any, Literal, TypeAlias

import msgspec

from conductor.errors import describe

__all__ = [
    "INVALID",
    "Diagnostic",
    "InterpolatedString",
    "InvalidValue",
    "SourceLocation",
    "SourceText",
    "UnsupportedType",
    "ValueContext",
    "ValueIssue",
    "ValuePath",
    "as_list",
    "closest_match",
    "collect",
    "expected",
    "in_file_order",
    "invalid",
    "path_label",
    "to_diagnostic",
]

_MAX_WIDTH = 120
_BEFORE_VALUE = 40
# The line breaks of YAML 1.1, which the marks of PyYAML count too. One set of all characters would
# take twice as long to compile.
_LINE_BREAK = "\r\n?|[\n\x85]|[\u2028\u2029]"

ValuePath: TypeAlias = tuple[str | int, ...]
"""Keys and indexes that lead to a value: `("run", 0)`, `("with", "files", 1)`."""


class InterpolatedString(msgspec.Struct, frozen=True):
    """A string with `${VAR}` in it: `text` as written, and `values` of the variables `names`.

    Print only `text`: the expanded string may contain secrets.
    """

    text: str
    values: tuple[str, ...]
    names: tuple[str, ...]

    def __repr__(self) -> str:
        return f"InterpolatedString(text={self.text!r})"


class SourceLocation(msgspec.Struct, frozen=True):
    """A range of columns in one line of a chain file.

    `path` is the file as the user named it, or `<command line>`. `line` and `column` count from 1,
    in characters; `end_column` is the first column behind the value. `line` 0 stands for the file
    as a whole. `source` is the line as written: `${VAR}` is not expanded in it.
    """

    path: str
    line: int
    column: int
    end_column: int
    source: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}" if self.line else self.path

    @classmethod
    def whole(cls, path: str) -> SourceLocation:
        """The location of a whole file, or of something that is in no file."""
        return cls(path, 0, 0, 0, "")


class SourceText(msgspec.Struct, eq=False):
    """The text of one chain file with the index of its line breaks."""

    path: str
    text: str
    _starts: list[int] = []
    _ends: list[int] = []

    def __post_init__(self) -> None:
        breaks = list(re.finditer(_LINE_BREAK, self.text))
        self._starts = [0, *(found.end() for found in breaks)]
        self._ends = [*(found.start() for found in breaks), len(self.text)]

    def location(self, start: int, end: int) -> SourceLocation:
        """The location of `text[start:end]`, cut at the end of its first line."""
        line = bisect_right(self._starts, start) - 1
        first, last = self._starts[line], self._ends[line]
        return SourceLocation(
            path=self.path,
            line=line + 1,
            column=start - first + 1,
            end_column=max(min(end, last), start) - first + 1,
            source=self.text[first:last],
        )

    def end_of_line(self, index: int) -> int:
        """The index of the end of the line at `index`, before its line break."""
        return self._ends[bisect_right(self._starts, index) - 1]


class Diagnostic(msgspec.Struct, frozen=True):
    """One error or warning: location, message, a second location (`note`) and a remedy (`help`)."""

    location: SourceLocation
    message: str
    note: tuple[SourceLocation, str] | None = None
    help: str | None = None
    severity: Literal["error", "warning"] = "error"
    """Warnings do not prevent a chain file from being used."""

    def __str__(self) -> str:
        lines = [f"{self.location}: {self.severity}: {self.message}", *_excerpt(self.location)]
        if self.note:
            location, text = self.note
            lines += [f"{location}: note: {text}", *_excerpt(location)]
        if self.help:
            first, *more = self.help.splitlines()
            lines += [f"help: {first}", *(f"      {line}" for line in more)]
        return "\n".join(_printable(line).rstrip() for line in lines)


def in_file_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The diagnostics of one file, without duplicates, sorted by line and column."""
    locations = {
        problem: (problem.location.line, problem.location.column) for problem in diagnostics
    }
    return sorted(locations, key=locations.__getitem__)


def closest_match(word: str, known: Iterable[str]) -> str | None:
    """The element of `known` that `word` is probably a misspelling of, or None."""
    from difflib import get_close_matches

    by_form = {_normalized(name): name for name in known}
    found = get_close_matches(_normalized(word), by_form, n=1)
    return by_form[found[0]] if found else None


def _normalized(word: str) -> str:
    return word[:100].lower().replace("-", "_")


def _excerpt(location: SourceLocation) -> list[str]:
    if not location.line:
        return []
    line, start, end = location.source, location.column - 1, location.end_column - 1
    if len(line) > _MAX_WIDTH:
        first = max(0, start - _BEFORE_VALUE)
        head, tail = "…" if first else "", "…" if first + _MAX_WIDTH < len(line) else ""
        line = head + line[first : first + _MAX_WIDTH] + tail
        start, end = start - first + len(head), min(end - first, _MAX_WIDTH) + len(head)
    # Tabs are kept, so that the caret is below the value for every tab width.
    indent = "".join("\t" if char == "\t" else " " * _width(char) for char in line[:start])
    caret = "^" * max(1, sum(map(_width, line[start:end])))
    return [f"   | {line}", f"   | {indent}{caret}"]


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _printable(line: str) -> str:
    """The line without control characters, which could be terminal escape sequences."""
    return "".join(
        char if char.isprintable() or char == "\t" else "\N{SYMBOL FOR SUBSTITUTE}" for char in line
    )


# -- issues of values ------------------------------------------------------------------------------

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
