"""Derive from a regular expression one that matches all prefixes of its matches.

RE2 has no partial matching, which text that arrives in chunks needs: its end may be the beginning
of a match. `(?:prefixes)\\z` finds the leftmost such end, in linear time.

Patterns must be accepted by RE2 first; they are not validated here. Single characters, classes and
assertions are copied.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import attrs

__all__ = ["SECRET", "PrefixPattern", "read"]

SECRET: Final = "secret"
"""Name of the only group that is kept."""

_COUNT: Final = re.compile(r"\{(\d+)(,?)(\d*)\}")
_FLAGS: Final = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_NAME: Final = re.compile(r"\(\?P?<(\w+)>")
_ESCAPE: Final = re.compile(r"\\(?:x\{[^}]*\}|x..|[pP]\{[^}]*\}|[pP].|0?[0-7]{1,3}|.)", re.DOTALL)
_CLASS: Final = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]", re.DOTALL)
_ASSERTIONS: Final = frozenset({"^", "$", "\\b", "\\B", "\\A", "\\z"})


@attrs.frozen
class PrefixPattern:
    """A part of a pattern without groups, and a pattern for the prefixes of its matches."""

    whole: str
    prefixes: str
    shortest: int
    """Characters of its shortest match."""
    is_atom: bool = False
    """Whether it is a single character or an assertion."""


_EMPTY: Final = PrefixPattern("", "", 0)


def read(pattern: str) -> PrefixPattern:
    """Parse a pattern that RE2 accepts; of its groups only `secret` is kept."""
    return _PatternParser(pattern).alternatives()


@attrs.define
class _PatternParser:
    pattern: str
    at: int = 0
    flags: frozenset[str] = frozenset()

    def alternatives(self) -> PrefixPattern:
        """Parse alternatives up to the end of the group."""
        outer, found = self.flags, [self.sequence()]
        while self.pattern[self.at : self.at + 1] == "|":
            self.at += 1
            found.append(self.sequence())
        self.flags = outer
        if len(found) == 1:
            return found[0]
        whole = "|".join(each.whole for each in found)
        prefixes = "|".join(each.prefixes for each in found)
        return PrefixPattern(
            f"(?:{whole})", f"(?:{prefixes})", min(each.shortest for each in found)
        )

    def sequence(self) -> PrefixPattern:
        parts: list[PrefixPattern] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            if self.pattern.startswith("\\Q", self.at):
                end = self.pattern.find("\\E", self.at)
                end = len(self.pattern) if end < 0 else end
                parts += [self.atom(_escaped(char)) for char in self.pattern[self.at + 2 : end]]
                self.at = end + 2
            elif self.pattern.startswith("(", self.at):
                parts.append(self.group())
            else:
                parts.append(self.single())
            if parts and (count := self.count()) is not None:
                parts[-1] = _repeated(parts[-1], *count)
        return _joined(parts)

    def group(self) -> PrefixPattern:
        if flags := _FLAGS.match(self.pattern, self.at):
            outer, self.at = self.flags, flags.end()
            self.flags = (self.flags | {*flags[1]}) - {*(flags[2] or "")}
            if flags[3] == ")":  # flags for the rest of the enclosing group
                return _EMPTY
            found = self.alternatives()
            self.flags = outer
        else:
            name = _NAME.match(self.pattern, self.at)
            self.at = name.end() if name else self.at + 1
            found = self.alternatives()
            if name and name[1] == SECRET:
                found = attrs.evolve(found, whole=f"(?P<{SECRET}>{found.whole})", is_atom=False)
        self.at += 1
        return found

    def single(self) -> PrefixPattern:
        start, char = self.at, self.pattern[self.at]
        matcher = {"\\": _ESCAPE, "[": _CLASS}.get(char)
        found = matcher.match(self.pattern, start) if matcher else None
        self.at = found.end() if found else start + 1
        return self.atom(self.pattern[start : self.at])

    def atom(self, written: str) -> PrefixPattern:
        flags = "".join(sorted(self.flags - {"U"}))
        whole = f"(?{flags}:{written})" if flags else written
        return PrefixPattern(whole, f"(?:{whole})?", written not in _ASSERTIONS, is_atom=True)

    def count(self) -> tuple[int, int | None, str] | None:
        """Parse a quantifier, if one follows: minimum, maximum (`None`: unlimited), `?` if lazy."""
        char = self.pattern[self.at : self.at + 1]
        if char and char in "*+?":
            self.at += 1
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        elif counted := _COUNT.match(self.pattern, self.at):
            self.at = counted.end()
            low = int(counted[1])
            high = low if not counted[2] else int(counted[3]) if counted[3] else None
        else:
            return None
        lazy = self.pattern[self.at : self.at + 1] == "?"
        self.at += lazy
        return low, high, "?" if lazy != ("U" in self.flags) else ""


def _joined(parts: Sequence[PrefixPattern]) -> PrefixPattern:
    if not parts:
        return _EMPTY
    prefixes = parts[-1].prefixes
    for part in reversed(parts[:-1]):
        more = f"{part.whole}{prefixes}"
        prefixes = f"(?:{more})?" if part.is_atom else f"(?:{more}|{part.prefixes})"
    if len(parts) == 1:
        return parts[0]
    whole = "".join(part.whole for part in parts)
    return PrefixPattern(f"(?:{whole})", prefixes, sum(part.shortest for part in parts))


def _repeated(part: PrefixPattern, low: int, high: int | None, lazy: str) -> PrefixPattern:
    most = "" if high is None else str(high)
    whole = f"(?:{part.whole}){{{low},{most}}}{lazy}"
    if high == 0:
        prefixes = ""
    else:
        before = "*" if high is None else f"{{0,{high - 1}}}"
        prefixes = f"(?:{part.whole}){before}{part.prefixes}"
    return PrefixPattern(whole, prefixes, low * part.shortest)


def _escaped(char: str) -> str:
    return char if char.isalnum() or ord(char) > 127 else f"\\x{{{ord(char):x}}}"
