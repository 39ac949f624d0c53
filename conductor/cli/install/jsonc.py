"""Parse and edit JSON with comments and trailing commas (JSONC) as text. Pure.

Editors keep settings in this form. There is no library that keeps comments and is available for
each supported Python, so the text is edited by the place of every value: unchanged parts keep their
bytes. Insertion follows the indentation, the line ends and the trailing commas around it. Removing
a member that was inserted last restores the text, except for white space in an object that was
empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import attrs

__all__ = [
    "JsoncError",
    "Member",
    "Node",
    "find",
    "find_member",
    "parse",
    "remove_value",
    "replace_text",
    "set_value",
]

_MAX_DEPTH: Final = 100
_SKIPPED: Final = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true\b|false\b|null\b")


class JsoncError(ValueError):
    """The text is not JSONC; `index` is the place of the mistake."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


@attrs.frozen
class Node:
    """A value, the range of its text, and its members if it is an object."""

    value: Any
    start: int
    end: int
    members: Sequence[Member] = ()


@attrs.frozen
class Member:
    """A member of an object; `comma` is the index of the comma after it, if there is one."""

    key: str
    start: int
    node: Node
    comma: int | None


def parse(text: str) -> Node | None:
    """The value of a text, or `None` if it has only white space and comments.

    Raises `JsoncError`.
    """
    reader = _Scanner(text)
    if reader.next() == "":
        return None
    node = reader.value(0)
    if reader.next() != "":
        raise JsoncError("expected the end of the file", reader.index)
    return node


def find(root: Node | None, path: Sequence[str]) -> Node | None:
    """The value at a path of keys."""
    node = root
    for key in path:
        member = find_member(node, key)
        node = None if member is None else member.node
    return node


def find_member(node: Node | None, key: str) -> Member | None:
    """The member of an object; of repeated keys the last one, which readers of JSON take."""
    members = node.members if node is not None else ()
    return next((each for each in reversed(members) if each.key == key), None)


class _Scanner:
    """The text and an index that moves over it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.index = 0

    def next(self) -> str:
        """Skip white space and comments; return the character there, "" at the end."""
        skipped = _SKIPPED.match(self.text, self.index)
        assert skipped is not None
        self.index = skipped.end()
        if self.text.startswith("/*", self.index):
            raise JsoncError("this comment has no end", self.index)
        return self.text[self.index : self.index + 1]

    def value(self, depth: int) -> Node:
        char = self.next()
        start = self.index
        if depth > _MAX_DEPTH:
            raise JsoncError(f"nested more than {_MAX_DEPTH} deep", start)
        if char == "{":
            members = self.members(depth)
            return Node({each.key: each.node.value for each in members}, start, self.index, members)
        if char == "[":
            return Node(self.items(depth), start, self.index)
        if char == '"':
            return Node(self.string(), start, self.index)
        scalar = _SCALAR.match(self.text, start)
        if scalar is None:
            raise JsoncError("expected a value", start)
        self.index = scalar.end()
        return Node(json.loads(scalar[0]), start, self.index)

    def members(self, depth: int) -> list[Member]:
        members: list[Member] = []
        self.index += 1
        while (char := self.next()) != "}":
            start = self.index
            if members and members[-1].comma is None:
                raise JsoncError("expected `,` or `}`", start)
            if char != '"':
                raise JsoncError('expected a key in "…", or `}`', start)
            key = self.string()
            if self.next() != ":":
                raise JsoncError("expected `:` after the key", self.index)
            self.index += 1
            node = self.value(depth + 1)
            members.append(Member(key, start, node, self.comma()))
        self.index += 1
        return members

    def items(self, depth: int) -> list[Any]:
        values: list[Any] = []
        has_comma = True
        self.index += 1
        while self.next() != "]":
            if not has_comma:
                raise JsoncError("expected `,` or `]`", self.index)
            values.append(self.value(depth + 1).value)
            has_comma = self.comma() is not None
        self.index += 1
        return values

    def comma(self) -> int | None:
        if self.next() != ",":
            return None
        self.index += 1
        return self.index - 1

    def string(self) -> str:
        found = _STRING.match(self.text, self.index)
        if found is None:
            raise JsoncError("this string does not end on its line", self.index)
        try:
            string: str = json.loads(found[0])
        except ValueError:
            raise JsoncError("this string has an invalid escape", self.index) from None
        self.index = found.end()
        return string


_SAME_LINE: Final = re.compile(r"(?:[ \t]+|//[^\r\n]*|/\*[^\r\n]*?\*/)*")
_BLANKS: Final = re.compile(r"[ \t]*")
_LINE_END: Final = re.compile(r"[ \t]*(?:\r?\n|$)")


def set_value(text: str, path: Sequence[str], value: Any) -> str:
    """The text with this value at a path; missing objects are created.

    Raises `JsoncError` if the text is invalid, or if a value on the way is not an object.
    """
    root = parse(text)
    style = _Style.of(text)
    if root is None:
        separator = "" if not text or text.endswith("\n") else style.newline
        content = style.render(_nested(path, value), "")
        return f"{text}{separator}{content}{style.newline}"
    node = root
    for depth, key in enumerate(path):
        if not isinstance(node.value, dict):
            raise JsoncError("expected an object", node.start)
        member = find_member(node, key)
        if member is None:
            return _insert(text, node, key, _nested(path[depth + 1 :], value), style)
        node = member.node
    indent = _line_indent(text, node.start)
    return text[: node.start] + style.render(value, indent) + text[node.end :]


def replace_text(text: str, path: Sequence[str], written: str) -> str:
    """The text with the text of the value at an existing path replaced."""
    node = find(parse(text), path)
    return text if node is None else text[: node.start] + written + text[node.end :]


def remove_value(text: str, path: Sequence[str]) -> str:
    """The text without the member at a path; unchanged if there is none."""
    parent = find(parse(text), path[:-1])
    member = find_member(parent, path[-1])
    if parent is None or member is None:
        return text
    index = parent.members.index(member)
    if len(parent.members) == 1 and not _has_comment(text, parent, member):
        return f"{text[: parent.start]}{{}}{text[parent.end :]}"
    start = member.start
    end = (member.node.end if member.comma is None else member.comma) + (member.comma is not None)
    own_end = end
    start, end = _whole_lines(text, start, end)
    if index == len(parent.members) - 1 and member.comma is None and index > 0:
        comma = parent.members[index - 1].comma
        assert comma is not None
        between = text[comma + 1 : start]
        if between.isspace() and "\n" not in between:
            return text[:comma] + text[own_end:]
        return text[:comma] + between + text[end:]
    return text[:start] + text[end:]


def _insert(text: str, parent: Node, key: str, value: Any, style: _Style) -> str:
    outer = _line_indent(text, parent.start)
    newline = style.newline
    if not parent.members:
        place = _after_line(text, parent.start + 1)
        content = _rendered_member(key, value, outer + style.indent, style)
        is_closed = "\n" in text[place : parent.end]
        rest = "" if is_closed else newline + outer
        tail = text[place:] if is_closed else text[place:].lstrip(" \t")
        return f"{text[:place]}{newline}{outer}{style.indent}{content}{rest}{tail}"
    last = parent.members[-1]
    if "\n" not in text[parent.start : parent.end]:
        place = last.node.end if last.comma is None else last.comma
        content = f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
        return f"{text[:place]}, {content}{text[place:]}"
    indent = _line_indent(text, last.start)
    content = _rendered_member(key, value, indent, style)
    if last.comma is None:
        place = _after_line(text, last.node.end)
        head = f"{text[: last.node.end]},{text[last.node.end : place]}"
        return f"{head}{newline}{indent}{content}{text[place:]}"
    place = _after_line(text, last.comma + 1)
    return f"{text[:place]}{newline}{indent}{content},{text[place:]}"


def _rendered_member(key: str, value: Any, indent: str, style: _Style) -> str:
    return f"{json.dumps(key, ensure_ascii=False)}: {style.render(value, indent)}"


@attrs.frozen
class _Style:
    """How new text looks: the unit of indentation and the line end of the text around it."""

    indent: str
    newline: str

    @classmethod
    def of(cls, text: str) -> _Style:
        indents = re.findall(r'^([ \t]+)["}\]]', text, re.MULTILINE)
        newline = "\r\n" if "\r\n" in text else "\n"
        return cls(min(indents, key=len) if indents else "  ", newline)

    def render(self, value: Any, indent: str) -> str:
        """The text of a value; objects have a line for each member, lists one line."""
        if not isinstance(value, dict) or not value:
            return json.dumps(value, ensure_ascii=False)
        inner = indent + self.indent
        members = (_rendered_member(key, each, inner, self) for key, each in value.items())
        lines = [inner + member for member in members]
        return "{" + self.newline + f",{self.newline}".join(lines) + self.newline + indent + "}"


def _nested(path: Sequence[str], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _line_indent(text: str, index: int) -> str:
    line = text[text.rfind("\n", 0, index) + 1 : index]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _after_line(text: str, index: int) -> int:
    """The end of the comments that follow on the same line; `index` if other text follows."""
    rest = _SAME_LINE.match(text, index)
    assert rest is not None
    end = rest.end()
    return end if text[end : end + 1] in ("", "\r", "\n") else index


def _whole_lines(text: str, start: int, end: int) -> tuple[int, int]:
    """The range with its indentation and line end, if nothing else is on its lines."""
    line = text.rfind("\n", 0, start) + 1
    rest = _LINE_END.match(text, end)
    if text[line:start].strip(" \t") == "" and rest is not None:
        return line, rest.end()
    blanks = _BLANKS.match(text, end)
    assert blanks is not None
    return start, blanks.end()


def _has_comment(text: str, parent: Node, member: Member) -> bool:
    after = member.node.end if member.comma is None else member.comma + 1
    around = text[parent.start + 1 : member.start] + text[after : parent.end - 1]
    return around.strip() != ""
