"""Parse YAML text to data, with the source location of every value and key.

PyYAML only composes nodes. A scalar is the string in the file (`no`, `012`, `12:30`); an unquoted
`null`, `~` or an empty value is None. `${VAR}`, `${VAR:-default}` and `$$` are expanded: as in a
shell, the default applies if the variable is unset or empty. Any other `$` is a literal dollar
sign; references do not nest. Mistakes after which the rest can still be read are collected; syntax
errors are raised at once.

Aliases repeat a value; its location is that of the anchor. Expanded values count toward
`MAX_VALUES`. Merge keys, tags and repeated keys are errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

import msgspec
from yaml import BaseLoader, MarkedYAMLError, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from conductor.chainfile.diagnostics import (
    Diagnostic,
    InterpolatedString,
    SourceLocation,
    SourceText,
    ValuePath,
    closest_match,
)
from conductor.errors import ChainFileError

__all__ = ["Document", "expand", "read_document"]

MAX_VALUES = 10_000
MAX_DEPTH = 50

_TOO_DEEP = f"values nest at most {MAX_DEPTH} deep"
_TOO_MANY = f"a chain file has at most {MAX_VALUES} values, those that aliases repeat included"

_NULL_SCALARS = ("", "~", "null", "Null", "NULL")
"""Unquoted scalars that are read as None."""
_PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map")}
# Patterns are compiled when they are used first.
_PROPERTIES = r"(?:[&!][^\s,\[\]{}]*\s+)+"
_BLOCK_SCALAR = r"[|>][^\s]*"
_HALF_CHARACTERS = "[\ud800-\udfff]"
_REFERENCE = r"\$\$|\$\{([^}]*)(\}?)"
_BODY = r"(?s)([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?"


class Document(msgspec.Struct, frozen=True, eq=False):
    """One chain file as data: mappings, lists, strings and None."""

    data: Any
    locations: dict[ValuePath, SourceLocation] = msgspec.field(default_factory=dict)
    keys: dict[ValuePath, SourceLocation] = msgspec.field(default_factory=dict)
    written: dict[ValuePath, InterpolatedString] = msgspec.field(default_factory=dict)
    diagnostics: list[Diagnostic] = msgspec.field(default_factory=list)
    unusable: set[ValuePath] = msgspec.field(default_factory=set)
    """Paths of values for which a problem is already reported."""


def read_document(source: SourceText, environ: Mapping[str, str]) -> Document:
    """Parse the single YAML document of a chain file; raises `ChainFileError` on syntax errors."""
    reader = _NodeReader(source, environ)
    data = reader.read(_compose(source), (), None)
    document = reader.document
    return msgspec.structs.replace(
        document, data=data, diagnostics=list(dict.fromkeys(document.diagnostics))
    )


class _NodeLoader(BaseLoader):
    """PyYAML's loader, which raises `MarkedYAMLError` instead of `RecursionError` when values nest
    deeper than `MAX_DEPTH`."""

    _depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise MarkedYAMLError(problem=_TOO_DEEP, problem_mark=mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _compose(source: SourceText) -> Node:
    loader = None
    try:
        loader = _NodeLoader(source.text)
        node = loader.get_node() if loader.check_node() else None
        if node is not None and loader.check_node():
            second = loader.peek_event()  # type: ignore[no-untyped-call]
            start = second.start_mark.index
            message = "a second YAML document begins here: a chain file is one document"
            raise _error(source, start, start + 3, message)
    except MarkedYAMLError as error:
        raise _syntax_error(source, error) from error
    except ReaderError as error:
        message = f"the character U+{ord(source.text[error.position]):04X} is not allowed in YAML"
        raise _error(source, error.position, error.position + 1, message) from error
    except (ValueError, OverflowError) as error:
        # PyYAML converts the digits of "\UFFFFFFFF" and of "%YAML 1.…" unchecked.
        mark = loader.get_mark().index if loader else 0
        raise _error(source, mark, mark + 1, "not valid YAML: a number is too large") from error
    if node is None:
        help = "a chain file begins with `version: 1`"
        raise _error(source, 0, 0, "the file is empty", help)
    return node


_KEY: Final = re.compile(r"\s+[\w-]+:")
"""A line up to the colon of its first word."""


def _syntax_error(source: SourceText, error: MarkedYAMLError) -> ChainFileError:
    problem, mark = error.problem or "", error.problem_mark or error.context_mark
    index = min(mark.index, len(source.text)) if mark else 0
    if index == len(source.text):
        index = len(source.text.rstrip())
    location = source.location(index, index + 1)
    note = None
    if error.context and error.context_mark:
        start = error.context_mark.index
        before = source.location(start, start + 1)
        if before != location:
            note = (before, error.context)
    message, help = f"not valid YAML: {problem}", None
    if problem == _TOO_DEEP:
        message = problem
    elif problem == "second occurrence" and note:
        message, note = "an anchor is given only once", (note[0], "first given here")
    elif "'\\t'" in problem or source.text[index : index + 1] == "\t":
        message, help = "a tab cannot indent YAML", "use spaces"
    elif "${" in location.source:
        help = 'inside `[ ]` and `{ }`, put a reference in quotes: `"${VAR}"`'
    elif source.path.endswith(".py"):
        help = "a chain file is YAML; `acp-conductor try FILE` runs a proxy in Python"
    elif problem.startswith("expected <block end>") and note:
        message = "the indentation fits no line above"
        column, above = note[0].column, _column_above(source.text, index)
        help = f"begin it in column {above}, as the key above"
        if note[1] == "while parsing a block mapping" and above != column:
            help += f", or in column {column}, as the keys of the block"
        note = (note[0], "the block begins here")
    elif "mapping values are not allowed" in problem:
        help = "put a value that contains `: ` in quotes"
        if _KEY.fullmatch(location.source[: location.column]):
            help = (
                "begin this line in the same column as the one before, which has a value and "
                "can have no keys"
            )
    elif "cannot start any token" in problem:
        help = "put a value that begins with this character in quotes"
    return ChainFileError([Diagnostic(location, message, note, help)])


def _column_above(text: str, index: int) -> int:
    """The column of the last key before the line of `index`; of a list item, its first key."""
    lines = text[: text.rfind("\n", 0, index) + 1].splitlines()
    above = next((each for each in reversed(lines) if each.strip() and each.strip()[0] != "#"), "")
    return len(above) - len(above.lstrip(" -")) + 1


def _error(
    source: SourceText, start: int, end: int, message: str, help: str | None = None
) -> ChainFileError:
    return ChainFileError([Diagnostic(source.location(start, end), message, help=help)])


class _NodeReader(msgspec.Struct, eq=False):
    source: SourceText
    environ: Mapping[str, str]
    document: Document = msgspec.field(default_factory=lambda: Document(None))
    values: int = 0
    around: list[Node] = msgspec.field(default_factory=list)
    """The enclosing lists and mappings of the current value."""

    def read(self, node: Node, path: ValuePath, key: SourceLocation | None) -> Any:
        start, end = _span(node, self.source)
        location = key if key and start == end else self.source.location(start, end)
        self.document.locations[path] = location
        self.values += 1
        if self.values > MAX_VALUES:
            raise ChainFileError([Diagnostic(location, _TOO_MANY)])
        if len(path) > MAX_DEPTH:
            raise ChainFileError([Diagnostic(location, _TOO_DEEP)])
        if any(node is outer for outer in self.around):
            raise ChainFileError([Diagnostic(location, "an alias of this value stands inside it")])
        if node.tag not in _PLAIN_TAGS:
            whole = self.source.location(node.start_mark.index, end)
            self.report(path, "a YAML tag has no meaning in a chain file", location=whole)
        if isinstance(node, ScalarNode):
            return self.scalar(node, path)
        self.around.append(node)
        data: Any
        if isinstance(node, SequenceNode):
            data = [self.read(item, (*path, i), None) for i, item in enumerate(node.value)]
        else:
            data = dict(self.items(node, path))
        self.around.pop()
        return data

    def items(self, node: Node, path: ValuePath) -> Iterator[tuple[str, Any]]:
        first: dict[str, SourceLocation] = {}
        for key_node, value_node in node.value:
            start, end = _span(key_node, self.source)
            location = self.source.location(start, end)
            key = key_node.value
            if not isinstance(key, str):
                self.report(path, "a key is a word, not a list or a mapping", location=location)
            elif key == "<<" and key_node.style is None:
                help = "write the keys out; an alias may stand for a whole value"
                self.report(path, "merge keys are not supported", location=location, help=help)
            elif _is_forbidden(key):
                self.report(path, "a key with a NUL or half a character", location=location)
            elif key in first:
                note = (first[key], "first given here")
                message = f"the key `{key}` is repeated"
                self.document.diagnostics.append(Diagnostic(location, message, note))
            else:
                first[key] = self.document.keys[*path, key] = location
                yield key, self.read(value_node, (*path, key), location)

    def scalar(self, node: ScalarNode, path: ValuePath) -> str | None:
        text: str = node.value
        if node.style is None and text in _NULL_SCALARS:
            return None
        if _is_forbidden(text):
            self.report(path, "a NUL or half a character cannot be passed to a program")
            return ""
        expanded = expand(text, self.environ)
        if expanded.referred:
            self.document.written[path] = InterpolatedString(text, expanded.values, expanded.names)
        if expanded.bad:
            start, end = _span(node, self.source)
            spans = _find_references(self.source.text[start:end])
            exact = len(spans) == len(_find_references(text))
            for bad in expanded.bad:
                location = None
                if exact:
                    first, last = spans[bad.number]
                    location = self.source.location(start + first, start + last)
                self.report(path, bad.message, location=location, help=bad.help)
        return expanded.text

    def report(
        self,
        path: ValuePath,
        message: str,
        *,
        location: SourceLocation | None = None,
        help: str | None = None,
    ) -> None:
        """Report a problem of the value at `path` and exclude the value from later checks."""
        location = location or self.document.locations[path]
        self.document.diagnostics.append(Diagnostic(location, message, help=help))
        self.document.unusable.add(path)


def _is_forbidden(text: str) -> bool:
    """Whether a text has a NUL or half a surrogate pair."""
    return "\0" in text or (not text.isascii() and bool(re.search(_HALF_CHARACTERS, text)))


def _span(node: Node, source: SourceText) -> tuple[int, int]:
    """Start and end of a value, without its anchor and without comments after its first line."""
    start, end = node.start_mark.index, node.end_mark.index
    if source.text.startswith(("&", "!"), start):
        properties = re.compile(_PROPERTIES).match(source.text, start, end)
        start = start if properties is None else properties.end()
    if isinstance(node, ScalarNode):
        if node.style in ("|", ">"):
            block = re.compile(_BLOCK_SCALAR).match(source.text, start)
            return start, end if block is None else max(end, block.end())
        return start, end
    limit = source.end_of_line(start)
    if end <= limit:
        return start, end
    return start, _last_end(node, start, limit) or start + 1


def _last_end(node: Node, start: int, limit: int) -> int:
    """End of the last token of a node before `limit`. Aliases are not followed."""
    ends = [0]
    is_list = isinstance(node, SequenceNode)
    parts = node.value if is_list else chain.from_iterable(node.value)
    for part in parts:
        first = part.start_mark.index
        if isinstance(part, ScalarNode):
            if start <= first < limit:
                ends.append(min(part.end_mark.index, limit))
        elif start < first < limit:
            ends.append(
                _last_end(part, first, limit)
                if part.end_mark.index > limit
                else part.end_mark.index
            )
    return max(ends)


# -- references to variables -----------------------------------------------------------------------


class BadReference(msgspec.Struct, frozen=True):
    """A malformed reference or an unset variable; `number` is its index among the references."""

    number: int
    message: str
    help: str | None


class ExpandedString(msgspec.Struct, frozen=True):
    """An expanded string; `values` are the non-empty values of the variables `names`."""

    text: str
    values: tuple[str, ...]
    names: tuple[str, ...]
    referred: bool
    bad: tuple[BadReference, ...]


def expand(text: str, environ: Mapping[str, str]) -> ExpandedString:
    """Expand the references of a string; a bad one becomes the empty string and goes to `bad`."""
    if "$" not in text:
        return ExpandedString(text, (), (), False, ())
    parts: list[str] = []
    values: list[str] = []
    names: list[str] = []
    bad: list[BadReference] = []
    end = 0
    found = list(re.finditer(_REFERENCE, text))
    for number, reference in enumerate(found):
        parts.append(text[end : reference.start()])
        end = reference.end()
        if reference[0] == "$$":
            parts.append("$")
            continue
        body = re.fullmatch(_BODY, reference[1])
        if not reference[2] or not body or "${" in reference[1]:
            bad.append(_malformed(number, reference))
            continue
        name, default = body[1], body[2]
        value = environ.get(name)
        if value is not None and (value or default is None):
            parts.append(value)
            if value:
                values.append(value)
                names.append(name)
        elif default is not None:
            parts.append(default)
        else:
            bad.append(_unset(number, name, environ))
    parts.append(text[end:])
    referred = any(reference[0] != "$$" for reference in found)
    return ExpandedString("".join(parts), tuple(values), tuple(names), referred, tuple(bad))


def _find_references(raw: str) -> list[tuple[int, int]]:
    """Start and end of every reference in source text, in order."""
    return [found.span() for found in re.finditer(_REFERENCE, raw)]


def _malformed(number: int, reference: re.Match[str]) -> BadReference:
    if not reference[2]:
        message = "this `${` is never closed"
    elif "${" in reference[1]:
        message = "a default cannot refer to another variable"
    else:
        message = "this is not a reference to an environment variable"
    form = "write `${VAR}`, `${VAR:-default}`, or `$${` for the characters themselves"
    return BadReference(number, message, form)


def _unset(number: int, name: str, environ: Mapping[str, str]) -> BadReference:
    meant = closest_match(name, environ)
    hint = f"set it, or give it a default: `${{{name}:-…}}`"
    return BadReference(
        number,
        f"the environment variable `{name}` is not set",
        f"did you mean `{meant}`? Otherwise {hint}" if meant else hint,
    )
