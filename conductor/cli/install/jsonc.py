"""Parse JSON with comments and trailing commas (JSONC), with the place of every value. Pure.

Editors keep settings in this form. There is no library that keeps comments and is available for
each supported Python, so the text is edited by position (`jsonc_edit`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import attrs

__all__ = ["JsoncError", "Member", "Node", "find", "find_member", "parse"]

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
