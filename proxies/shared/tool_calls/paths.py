"""Files that a tool call names, compared with globs and with the session's directory.

`texts` finds the texts, `proxies.shared.paths.readings` resolves them. Paths that cannot be
resolved are listed separately: a rule about paths that denies matches them.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from conductor.files import is_below
from proxies.shared.paths import (
    MAX_PATH_LENGTH,
    WILDCARDS,
    PathReading,
    home_expanded,
    is_web_address,
    leads_elsewhere,
    matches,
    may_be_path,
    normal_path,
    real_path,
    resolve,
    wildcard_expansions,
)
from proxies.shared.tool_calls.texts import base_texts, path_texts

__all__ = ["NamedPaths", "named_paths"]

_MAX_PATHS: Final = 1000
_MAX_WORDS: Final = 10_000
"""Maximum paths of a call, and words of a command, that are checked; with more, every rule about
paths that denies matches."""
_MAX_RESOLVED: Final = 200
"""Maximum words of a command for which symbolic links are followed."""
_MAX_EXPANDED: Final = 20
"""Maximum words of a command for which wildcards are expanded."""


@attrs.frozen
class NamedPaths:
    """The paths in a tool call."""

    cwd: str
    paths: Mapping[str, Sequence[PathReading]] = attrs.field(factory=dict)
    hints: Sequence[str] = ()
    """Texts that may be paths: they count for rules that deny."""
    bases: Sequence[str] = ()
    """The directories that a relative path may be relative to."""
    unresolved: Sequence[str] = ()
    """Paths that could be anywhere."""
    unclear: Sequence[str] = ()
    """Members that may name a path."""

    def __bool__(self) -> bool:
        return bool(self.paths or self.unresolved or self.unclear)

    def not_covered(self, globs: Sequence[str]) -> str | None:
        """Return why these globs do not cover every path; `None` if they do."""
        if self.unresolved:
            return f"the path `{_shortened(self.unresolved[0])}` cannot be resolved"
        if self.unclear:
            return f"the input may name another path: `{_shortened(self.unclear[0])}`"
        real = real_path(self.cwd) or self.cwd
        for name, readings in self.paths.items():
            for each in readings:
                written = _covered(each.lexical, {self.cwd, real}, globs)
                if not (written and _covered(each.real, {real}, globs)):
                    return f"the path `{_shortened(name)}` is not covered"
        return None if self.paths else "the call names no path"

    def touches(self, globs: Sequence[str]) -> bool:
        """Whether these globs match any reading of a path; true if a path is unresolved. Without
        a known directory, relative globs match in all."""
        if self.unresolved or len(self.hints) > _MAX_WORDS:
            return True
        if not self.cwd:
            globs = [each if each[:1] in ("/", "~") else f"**/{each}" for each in globs]
        directories = {self.cwd or "/", real_path(self.cwd) or "/"}
        anchored = [
            (_folded(glob), _folded(directory))
            for directory in directories
            for glob in _with_real_base(globs, directory)
        ]
        readings = itertools.chain(*self.paths.values(), self._hinted())
        paths = (
            _folded(path if path.startswith("/") else f"/{path}")
            for each in readings
            for path in {each.lexical, each.real}
        )
        return any(matches(path, glob, where) for path in paths for glob, where in anchored)

    def outside(self) -> str | None:
        """Return the first path that is not below the session's directory, or `None`."""
        real = real_path(self.cwd)
        if self.unresolved or real is None:
            return next(iter([*self.unresolved, *self.paths]), None)
        roots = (os.path.normpath(self.cwd), real)
        for name, readings in self.paths.items():
            for each in readings:
                if not is_below(each.lexical, roots[0]) or not is_below(each.real, roots[1]):
                    return name
        return None

    def _hinted(self) -> Iterator[PathReading]:
        """Yield readings of the hints, for the first few with symbolic links and wildcards."""
        few = self.hints[:_MAX_RESOLVED]
        inside = (os.path.join(self.cwd, home_expanded(text)) for text in few)
        entered = [text for text in inside if _is_directory(text)][:5]  # `cd DIRECTORY && cat FILE`
        bases = list(dict.fromkeys([*self.bases, *entered]))
        patterns = [text for text in few if not WILDCARDS.isdisjoint(text)][:_MAX_EXPANDED]
        expanded = [each for text in patterns for each in wildcard_expansions(text, self.cwd)]
        for text in [*few, *expanded]:
            yield from resolve(text, bases)[0]
        for text in self.hints[_MAX_RESOLVED:]:
            path = normal_path(os.path.join(self.cwd, text))
            yield PathReading(path, path)


def named_paths(
    call: Mapping[str, Any],
    cwd: str,
    more: Iterable[str] = (),
    more_bases: Sequence[str] = (),
) -> NamedPaths:
    """Collect the paths in a tool call, of either protocol version.

    `more` are further texts that may be paths; `more_bases` are further directories that they may
    be relative to.
    """
    certain, possible, named = path_texts(call)
    bases = list(dict.fromkeys([cwd, *base_texts(call.get("rawInput")), *more_bases]))
    named = [text for text in named if may_be_path(text)][: _MAX_WORDS + 1]
    possible += [text for text in named[:_MAX_RESOLVED] if _is_file(text, bases)]
    paths: dict[str, Sequence[PathReading]] = {}
    unresolved, unclear = [], list(possible)
    for text in list(dict.fromkeys(certain))[:_MAX_PATHS]:
        if is_web_address(text):
            unclear.append(text)
            continue
        if len(text) <= MAX_PATH_LENGTH and leads_elsewhere(text):
            possible += [text, *re.split(r"[,;:|\s]+", text)]
            unclear.append(text)
        paths[text], is_certain = resolve(text, bases)
        if not is_certain:
            unresolved.append(text)
    if len(certain) > _MAX_PATHS:
        unresolved.append(f"one of {len(certain)}")
    # Ten times as many, as a word of a command is given in several parts.
    wild = [text for text in certain if not WILDCARDS.isdisjoint(text)]
    many = itertools.islice(itertools.chain(possible, wild, named, more), 10 * _MAX_WORDS)
    hints = [text for text in dict.fromkeys(many) if may_be_path(text)]
    return NamedPaths(cwd, paths, hints, bases, unresolved, unclear)


def _is_file(text: str, bases: Sequence[str]) -> bool:
    try:
        return any(os.path.isfile(os.path.join(base, text)) for base in bases if base)
    except (OSError, ValueError):
        return False


def _with_real_base(globs: Sequence[str], directory: str) -> Iterator[str]:
    """Yield the globs, each also with symbolic links in its literal prefix resolved."""
    for glob in globs:
        yield glob
        whole = os.path.join(directory, home_expanded(glob))
        fixed = re.split(r"[*?]", whole, maxsplit=1)[0]
        base = whole if fixed == whole else fixed.rpartition("/")[0]
        real = real_path(base)
        if base and real is not None and real != base and not re.search(r"[*?]", real):
            yield real + whole[len(base) :]


def _is_directory(path: str) -> bool:
    try:
        return os.path.isdir(path)
    except ValueError:
        return False


def _folded(path: str) -> str:
    """Normalize a path on platforms with case-insensitive file systems."""
    if sys.platform not in ("darwin", "win32"):
        return path
    return unicodedata.normalize("NFC", path).casefold()


def _covered(path: str, directories: Iterable[str], globs: Sequence[str]) -> bool:
    return any(matches(path, glob, directory) for directory in directories for glob in globs)


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"
