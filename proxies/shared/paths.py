"""Paths: the files that a text may mean, and globs for them (`*` within a directory, `**` across).

`resolve` gives the readings of a text, as the operating system, or a tool, may understand it: as
written, normalized as text (`a/../b`), with symbolic links followed first, as a `file:` URL, with
`~` expanded. Paths that cannot be resolved (`$DIR/x`, the home of an unknown user, other schemes)
are reported as such.
"""

from __future__ import annotations

import fnmatch
import functools
import itertools
import os
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

import attrs

from conductor.files import is_below
from proxies.shared.regex import Pattern, compile_pattern

__all__ = [
    "MAX_PATH_LENGTH",
    "WILDCARDS",
    "PathReading",
    "home_expanded",
    "is_web_address",
    "leads_elsewhere",
    "leads_out",
    "matches",
    "may_be_path",
    "normal_path",
    "real_path",
    "resolve",
    "wildcard_expansions",
]

MAX_PATH_LENGTH: Final = 4096
"""Maximum characters of a path that an operating system opens."""
_DRIVE: Final = re.compile(r"[A-Za-z]:[\\/]")
WILDCARDS: Final = frozenset("*?[{")
"""Characters of globs, and of braces."""
_CLASS: Final = re.compile(r"\[[^/\]]*\[[:.=][^/\]]*\][^/\]]*\]")
"""A bracket expression with a class, such as `[[:alpha:]]`."""
_QUOTES: Final = "'\"`<>@\ufeff"
"""Characters around a path that some tools remove."""
_OF_PROCESS: Final = re.compile(
    r"/(?:proc/[^/]+(?:/task/[^/]+)?|dev)/(cwd|root|fd/[0-9]+|stdin|stdout|stderr)(?=/|$)"
)
"""A path that depends on the process that opens it."""
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(file):", re.IGNORECASE)
_WEB: Final = frozenset({"http", "https", "ws", "wss", "ftp", "git", "ssh"})
_REGEX_BY_WILDCARD = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@attrs.frozen
class PathReading:
    """A path in one of its readings, absolute if the directory is known."""

    lexical: str
    real: str


def matches(path: str, glob: str, directory: str = "") -> bool:
    """Whether an absolute path matches; a relative glob is under `directory`, `~` is expanded.

    A glob that names a directory also matches everything below it; `.` is `directory` itself.
    Only the glob's own `*` and `?` are special, not those of `directory`.
    """
    base, pattern = _anchored(glob, directory)
    if not base.startswith("/"):
        return False  # relative, to an unknown directory
    if not is_below(path, base):
        return False
    return _pattern(pattern).fullmatch(path[len(base.rstrip("/")) :])


def resolve(text: str, bases: Sequence[str]) -> tuple[list[PathReading], bool]:
    """Return the readings of a path, and whether they are complete."""
    if len(text) > MAX_PATH_LENGTH:
        return [], False
    texts, certain = [text], True
    if (clean := text.strip().strip(_QUOTES).strip()) != text:
        texts.append(clean)
    if (scheme := _scheme(clean)) is not None:
        location = clean[len(scheme) + 1 :]
        host, path = "", location
        if location.startswith("//"):
            host, _, rest = location[2:].partition("/")
            path = f"/{rest}"
        certain = scheme == "file" and host.lower() in ("", "localhost")
        texts = [path, unquote(path), unquote(re.split("[?#]", path)[0])]
    if re.search("%[0-9A-Fa-f]{2}", clean):
        texts.append(unquote(clean))
    for each in list(texts):
        if "$" in each or _DRIVE.match(each) or each.startswith("\\\\"):
            certain = False
            texts.append(os.path.expandvars(each))
        if each.startswith("~"):
            expanded = home_expanded(each)
            certain = certain and expanded != each
            texts.append(expanded)
        if "\\" in each:
            texts.append(each.replace("\\", "/"))
        if (other := _of_process(each)) is not None:
            certain = False
            texts.append(other)
    readings: list[PathReading] = []
    for each in dict.fromkeys(texts):
        for base in dict.fromkeys(bases):
            whole = os.path.join(base, each.partition("\0")[0])
            lexical, real = normal_path(whole), real_path(whole)
            certain = certain and "\0" not in each and real is not None
            readings += [PathReading(lexical, one or lexical) for one in (real, real_path(lexical))]
    return list(dict.fromkeys(readings)), certain


def home_expanded(text: str) -> str:
    """Expand `~`; a text that is not a path is returned as it is."""
    try:
        return os.path.expanduser(text)
    except ValueError:  # NUL, or a lone surrogate
        return text


def is_web_address(text: str) -> bool:
    """Whether a text is a URL of something that is not a file of this machine."""
    return _scheme(text) in _WEB


def leads_elsewhere(text: str) -> bool:
    """Whether some tools may read a path as several paths or a glob that lead elsewhere."""
    rest = text[len(_scheme(text) or "") + 1 :] if _scheme(text) else text
    parts = re.split(r"[:\s]", rest)
    if re.search(r"[,;|\n]", rest) or any(each.startswith(("/", "~", "..")) for each in parts[1:]):
        return True
    wild = min((at for at in map(rest.find, WILDCARDS) if at >= 0), default=len(rest))
    return ".." in rest[wild:] or ("{" in rest and "/" in rest[rest.index("{") :])


def may_be_path(text: str) -> bool:
    """Whether a text has one line and is no longer than a path may be."""
    return "\n" not in text.strip() and len(text) <= MAX_PATH_LENGTH


def wildcard_expansions(word: str, cwd: str) -> list[str]:
    """Expand braces in a word, and wildcards in its last path component."""
    found: list[str] = []
    for each in _alternatives(os.path.join(cwd, home_expanded(word))):
        directory, _, name = each.rpartition("/")
        found.append(each)
        if not WILDCARDS.isdisjoint(name) and WILDCARDS.isdisjoint(directory):
            try:
                with os.scandir(directory or "/") as entries:
                    names = [entry.name for entry in itertools.islice(entries, 1000)]
            except (OSError, ValueError):
                continue
            pattern = _CLASS.sub("?", name).replace("[^", "[!")
            found += [f"{directory}/{one}" for one in fnmatch.filter(names, pattern)][:100]
    return found[:200]


def leads_out(pattern: str, *, is_list: bool) -> bool:
    """Whether a search pattern may select files outside of the directory that is searched.

    One that is not a list of globs may be a regular expression, with `/`, `|` and quotes in it."""
    if len(pattern) > MAX_PATH_LENGTH:
        return True
    begins: tuple[str, ...] = ("/", "~", "$", "file:")
    texts = [pattern.lstrip()]
    if is_list:
        texts += [each.lstrip(f"!\\{_QUOTES}") for each in re.split(r"[,;|\s]+", pattern)]
        begins = (*begins, "-")  # an option of the search program
    return any(
        one.lower().startswith(begins) or ".." in one
        for text in texts
        for one in _alternatives(text)
    )


def _alternatives(word: str) -> list[str]:
    """Expand braces in a word; a bounded number."""
    alternatives = [word]
    for _ in range(50):
        whole = alternatives.pop(0)
        before, _, rest = whole.rpartition("{")
        inner, closed, after = rest.partition("}")
        if not closed or "{" not in whole:
            alternatives.insert(0, whole)
            break
        inside = [*inner.split(",")[:50], *(["*"] if ".." in inner else [])]  # `{a..z}`
        alternatives += [before + each + after for each in inside]
    return alternatives


def real_path(path: str) -> str | None:
    """Return a path with symbolic links followed; `None` if it is relative or cannot be read."""
    try:
        return os.path.realpath(path) if path.startswith("/") else None
    except (ValueError, OSError, RecursionError):
        return None


def normal_path(path: str) -> str:
    """Return a path without `.`, `..` and repeated slashes, as text."""
    normal = os.path.normpath(path)
    return normal[1:] if normal.startswith("//") else normal


def _anchored(glob: str, directory: str) -> tuple[str, str]:
    """Return the base directory of a glob, and the glob below it, which begins with `/`."""
    home, _, rest = glob.partition("/")
    if home.startswith("~"):
        directory, glob = os.path.expanduser(home), rest
    elif glob.startswith("/"):
        directory = "/"
    directory, glob = os.path.normpath(directory), os.path.normpath(glob.lstrip("/"))
    while glob == ".." or glob.startswith("../"):
        directory, glob = os.path.dirname(directory), glob[3:] or "."
    return directory, "" if glob == "." else f"/{glob}"


@functools.lru_cache(1000)
def _pattern(glob: str) -> Pattern:
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", glob)
    body = "".join(_REGEX_BY_WILDCARD.get(piece, re.escape(piece)) for piece in pieces)
    return compile_pattern(body + "(?:/.*)?", dot_all=True)


def _of_process(text: str) -> str | None:
    """Return a path without its beginning that depends on the process; `None` without one."""
    plain = re.sub(r"/(?:\.?/)+", "/", text)
    found = _OF_PROCESS.search(plain) or _OF_PROCESS.search(normal_path(plain))
    if found is None:
        return None
    rest = found.string[found.end() :]
    return rest if found[1] == "root" else rest.lstrip("/")


def _scheme(text: str) -> str | None:
    found = _URI.match(text.strip())
    return (found[1] or found[2]).lower() if found else None
