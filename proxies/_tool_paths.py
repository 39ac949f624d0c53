"""Files that a tool call names, resolved as the operating system would.

A path has several readings: as written, normalized as text (`a/../b`), and with symbolic links
followed first. Paths that cannot be resolved (`$DIR/x`, the home of an unknown user, schemes other
than `file:`) are listed separately.
"""

from __future__ import annotations

import fnmatch
import itertools
import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import attrs

from proxies._path_globs import matches

__all__ = ["NamedPaths", "home_expanded", "key_words", "named_paths", "resolve", "strings"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MAX_PATHS: Final = 1000
_MAX_WORDS: Final = 10_000
"""Maximum paths of a call, and words of a command, that are checked; with more, every rule about
paths that denies matches."""
_MAX_PATH_LENGTH: Final = 4096
"""Maximum characters of a path that an operating system opens."""
_MAX_RESOLVED: Final = 200
"""Maximum words of a command for which symbolic links are followed."""
_MAX_EXPANDED: Final = 20
"""Maximum words of a command for which wildcards are expanded."""
_PATH_WORDS: Final = _words(
    "path paths file files filename filenames filepath filepaths dir dirs directory directories"
    " folder folders uri uris url urls location locations target targets source src dest dst"
    " destination destinations from to root roots cwd workdir workspace notebook output outfile"
    " link symlink"
)
"""A member with one of these words in its name is a path."""
_BASES: Final = _words("cwd workdir workingdirectory workingdir directory dirpath")
"""Members that relative paths may be relative to."""
_PROSE: Final = _words(
    "prompt description instruction instructions reason justification explanation title message"
    " thought summary"
)
"""Members that are prose, even if they look like paths."""
_CONTENTS: Final = _words(
    "content contents newstring oldstring newtext oldtext newstr oldstr text filetext"
    " inserttext newsource codeedit unifieddiff body code edits changes"
)
"""Members that are contents of a file, in calls that change files."""
_PATTERNS: Final = _words(
    "pattern patterns glob globs include includes exclude excludes query regex filter"
)
"""Members that are search patterns; a path only if they begin like one, or contain `..`."""
_COMMANDS: Final = _words(
    "command commands cmd cmds cmdline commandline script scripts argv args arguments exec"
)
"""Members that are checked as commands."""
_SELECTIONS: Final = _words("glob globs include includes filter filters")
"""Members that select files: a rule that denies one of these denies the call."""
_BY_NAME: Final = _words("files changes paths filechanges")
"""Members with objects in which member names may be file names."""
_PATCH_WORDS: Final = _words("patch patchtext diff unifieddiff input changes edits codeedit")
"""Members that are patches, or may be."""
_PATCH_FILE: Final = re.compile(
    r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+)$", re.M
)
_DIFF_FILE: Final = re.compile(r"^(?:---|\+\+\+|(?:rename|copy) (?:from|to)|Index:) (\S.*)$", re.M)
_GIT_FILES: Final = re.compile(r"^diff --git (\S.*)$", re.M)
"""For a binary or empty file, or a change of mode, no other line has the name."""
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\([0-7]{1,3}|.)")
_DRIVE: Final = re.compile(r"[A-Za-z]:[\\/]")
_WILD: Final = frozenset("*?[{")
_QUOTES: Final = "'\"`<>@\ufeff"
"""Characters around a path that some tools remove."""
_OF_PROCESS: Final = re.compile(r"/proc/[^/]+(?:/task/[^/]+)?/(cwd|root|fd/[0-9]+)(?=/|$)")
"""A path that depends on the process that opens it."""
_MAX_JSON: Final = 1024 * 1024
"""Maximum characters of JSON in a text."""
_STRUCTURED: Final = _words("edits changes")
"""Members of `_CONTENTS` that are no text: as a text, they are JSON."""
_TEXTS: Final = _CONTENTS - _STRUCTURED
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(file):", re.IGNORECASE)
_WEB: Final = _words("http https ws wss ftp git ssh")


@attrs.frozen
class PathReading:
    """A path in one of its readings, absolute if the directory is known."""

    lexical: str
    real: str


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
        real = _real(self.cwd) or self.cwd
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
        directories = {self.cwd or "/", _real(self.cwd) or "/"}
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
        if self.unresolved or not self.cwd.startswith("/"):
            return next(iter([*self.unresolved, *self.paths]), None)
        roots = (os.path.normpath(self.cwd), os.path.realpath(self.cwd))
        for name, readings in self.paths.items():
            for each in readings:
                if not _below(each.lexical, roots[0]) or not _below(each.real, roots[1]):
                    return name
        return None

    def _hinted(self) -> Iterator[PathReading]:
        """Yield readings of the hints, for the first few with symbolic links and wildcards."""
        few = self.hints[:_MAX_RESOLVED]
        inside = (os.path.join(self.cwd, home_expanded(text)) for text in few)
        entered = [text for text in inside if _is_directory(text)][:5]  # `cd DIRECTORY && cat FILE`
        bases = list(dict.fromkeys([*self.bases, *entered]))
        patterns = [text for text in few if not _WILD.isdisjoint(text)][:_MAX_EXPANDED]
        expanded = [each for text in patterns for each in _expanded(text, self.cwd)]
        for text in [*few, *expanded]:
            yield from resolve(text, bases)[0]
        for text in self.hints[_MAX_RESOLVED:]:
            path = _normal(os.path.join(self.cwd, text))
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
    certain, possible, named = _collected(call)
    bases = list(dict.fromkeys([cwd, *_bases(call.get("rawInput")), *more_bases]))
    named = [text for text in named if _may_be_path(text)][: _MAX_WORDS + 1]
    possible += [text for text in named[:_MAX_RESOLVED] if _is_file(text, bases)]
    paths: dict[str, Sequence[PathReading]] = {}
    unresolved, unclear = [], list(possible)
    for text in list(dict.fromkeys(certain))[:_MAX_PATHS]:
        if _scheme(text) in _WEB:
            unclear.append(text)
            continue
        if len(text) <= _MAX_PATH_LENGTH and _leads_elsewhere(text):
            possible += [text, *re.split(r"[,;:|\s]+", text)]
            unclear.append(text)
        paths[text], is_certain = resolve(text, bases)
        if not is_certain:
            unresolved.append(text)
    if len(certain) > _MAX_PATHS:
        unresolved.append(f"one of {len(certain)}")
    # Ten times as many, as a word of a command is given in several parts.
    wild = [text for text in certain if not _WILD.isdisjoint(text)]
    many = itertools.islice(itertools.chain(possible, wild, named, more), 10 * _MAX_WORDS)
    hints = [text for text in dict.fromkeys(many) if _may_be_path(text)]
    return NamedPaths(cwd, paths, hints, bases, unresolved, unclear)


def resolve(text: str, bases: Sequence[str]) -> tuple[list[PathReading], bool]:
    """Return the readings of a path, and whether they are complete."""
    if len(text) > _MAX_PATH_LENGTH:
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
            lexical, real = _normal(whole), _real(whole)
            certain = certain and "\0" not in each and real is not None
            readings += [PathReading(lexical, one or lexical) for one in (real, _real(lexical))]
    return list(dict.fromkeys(readings)), certain


def home_expanded(text: str) -> str:
    """Expand `~`; a text that is no path is returned as it is."""
    try:
        return os.path.expanduser(text)
    except ValueError:  # NUL, or half a surrogate pair
        return text


def _of_process(text: str) -> str | None:
    """Return a path without its beginning that depends on the process; `None` without one."""
    plain = re.sub(r"/(?:\.?/)+", "/", text)
    found = _OF_PROCESS.search(plain) or _OF_PROCESS.search(_normal(plain))
    if found is None:
        return None
    rest = found.string[found.end() :]
    return rest if found[1] == "root" else rest.lstrip("/")


def strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield (member name, text) for every string in a JSON value, at any depth.

    A member name that looks like a path is yielded too, as a member `path`.
    """
    waiting = [(key, value)]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, str):
            yield key, value
            if (parsed := _json(key, value)) is not None:
                waiting.append((key, parsed))
        elif isinstance(value, list):
            waiting += [(key, each) for each in reversed(value)]
        elif isinstance(value, dict):
            for name, each in reversed(value.items()):
                waiting.append((name, each))
                if _looks_like_path(name):
                    yield "path", name


def _json(key: str, text: str) -> Any:
    """Parse a text that some agents send as JSON; `None` if it is none, is prose or a file."""
    text = text.strip(" \t\r\n\ufeff")
    if text[:1] not in ("{", "["):
        return None
    if "".join(key_words(key)) in _TEXTS | _PROSE:
        return None
    if len(text) > _MAX_JSON:
        return {"path": "\0"}
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def key_words(key: str) -> list[str]:
    """Return the words of a member's name, the same for `oldFilePath` and `old_file_path`."""
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", key).lower().replace("-", "_").split("_")


def _collected(call: Mapping[str, Any]) -> tuple[list[str], list[str], list[str]]:
    """Return the texts that are paths, those that may be, and those that may be a file name."""
    found: list[str] = []
    for part in [*_list(call.get("locations")), *_list(call.get("content"))]:
        if isinstance(part, dict):
            # A version 2 diff has several files.
            for change in [part, *_list(part.get("changes"))]:
                if isinstance(change, dict):
                    found += [change[key] for key in ("path", "oldPath") if key in change]
    found = [each for each in found if isinstance(each, str) and each]
    possible: list[str] = []
    named: list[str] = []
    changes_files = call.get("kind") in ("edit", "other", None)
    given = call.get("rawInput")
    runs = isinstance(given, dict) and any(given.get(key) for key in ("command", "cmd"))
    for key, name in _member_names(given):
        if "".join(key_words(key)) in _BY_NAME and not _is_known(name):
            found.append(name)
        elif "." in name:
            possible.append(name)
    for key, text in strings(given):
        name = "".join(key_words(key))
        if "*** " in text:
            found += _PATCH_FILE.findall(text)
        is_patch = name in _PATCH_WORDS or not {"patch", "diff"}.isdisjoint(key_words(key))
        if is_patch:
            found += _patch_names(text)
        if name in _STRUCTURED and text.lstrip()[:1] in ("{", "[") and _json(key, text) is None:
            possible.append(text)  # tools may repair it
        if (
            not text
            or (name in _PROSE and not _is_one_path(text))
            or (is_patch and name != "input" and "\n" in text)
        ):
            continue
        if name in _COMMANDS and runs:
            continue
        if name in _CONTENTS and changes_files:
            continue
        if name in _PATTERNS:
            if text.startswith(("/", "~", "$")) or ".." in text:
                possible.append(text)
            if name in _SELECTIONS:
                named += [text, *(each.removeprefix("**/") for each in re.split("[,;]", text))]
        elif not _PATH_WORDS.isdisjoint([name, *key_words(key)]) or (
            call.get("kind") == "move" and name.endswith("name")
        ):
            found.append(text)
        elif _looks_like_path(text):
            possible.append(text)
        else:
            named.append(text)
    return found, possible, named


def _patch_names(text: str) -> Iterator[str]:
    """Yield the files that a patch names, without git's prefixes `a/` and `b/`."""
    names = [name for found in _DIFF_FILE.findall(text) for name in _header_names(found)]
    for line in _GIT_FILES.findall(text):
        names += _header_names(line) if line.startswith('"') else _git_names(line)
    return (name for name in names if name != "/dev/null")


def _header_names(text: str) -> list[str]:
    """Return the names in a header line of a patch; git quotes unusual ones as C does."""
    quoted = [_unquoted(found) for found in _QUOTED.findall(text)] if text[0] == '"' else []
    rest = _QUOTED.sub("", text).strip() if quoted else text
    return [_without_prefix(each) for each in [*quoted, rest] if each]


def _unquoted(text: str) -> str:
    def char(found: re.Match[str]) -> str:
        if found[1][0] in "01234567":
            return chr(int(found[1], 8) & 255)
        return {"t": "\t", "n": "\n"}.get(found[1], found[1])

    return _ESCAPED.sub(char, text).encode("latin-1", "replace").decode(errors="replace")


def _git_names(line: str) -> list[str]:
    """Return the names after `diff --git`: one if the file is not renamed, else the names of all
    possible splits."""
    half = len(line) // 2
    same = _without_prefix(line[:half]), _without_prefix(line[half + 1 :])
    if line[half : half + 1] == " " and same[0] == same[1]:
        return [same[0]]
    words = line.split(" ")
    if len(words) > 20:
        return ["\0"]
    splits = [(" ".join(words[:at]), " ".join(words[at:])) for at in range(1, len(words))]
    return [_without_prefix(name) for split in splits for name in split]


def _member_names(value: Any) -> Iterator[tuple[str, str]]:
    """Yield (name of the enclosing member, member name) for all members."""
    waiting = [("", value)]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, list):
            waiting += [("", each) for each in value]
        elif isinstance(value, dict):
            for name, each in value.items():
                if isinstance(each, dict) or "".join(key_words(name)) not in _TEXTS:
                    waiting.append((name, each))
                if not _looks_like_path(name):
                    yield key, name
        elif isinstance(value, str) and (parsed := _json(key, value)) is not None:
            waiting.append((key, parsed))


def _is_known(name: str) -> bool:
    """Whether a member name has a known meaning."""
    plain = "".join(key_words(name))
    return plain in {"type", "kind", "status"} or any(
        plain in names for names in (_PATH_WORDS, _CONTENTS, _PATTERNS, _PROSE)
    )


def _is_file(text: str, bases: Sequence[str]) -> bool:
    try:
        return any(os.path.isfile(os.path.join(base, text)) for base in bases if base)
    except (OSError, ValueError):
        return False


def _bases(given: Any) -> Iterator[str]:
    for key, text in given.items() if isinstance(given, dict) else ():
        if isinstance(text, str) and "".join(key_words(key)) in _BASES:
            yield home_expanded(text)


def _looks_like_path(text: str) -> bool:
    begins = text.startswith(("~", "$", "file:")) or text in (".", "..")
    return begins or "/" in text or "\\" in text or "%2" in text


def _is_one_path(text: str) -> bool:
    """Whether a text that should be prose is a path."""
    return len(text.split()) == 1 and (_looks_like_path(text) or "." in text.rstrip("."))


def _leads_elsewhere(text: str) -> bool:
    """Whether some tools may read a path as several paths or a glob that lead elsewhere."""
    rest = text[len(_scheme(text) or "") + 1 :] if _scheme(text) else text
    parts = re.split(r"[:\s]", rest)
    if re.search(r"[,;|\n]", rest) or any(each.startswith(("/", "~", "..")) for each in parts[1:]):
        return True
    wild = min((at for at in map(rest.find, _WILD) if at >= 0), default=len(rest))
    return ".." in rest[wild:] or ("{" in rest and "/" in rest[rest.index("{") :])


def _without_prefix(name: str) -> str:
    name = name.partition("\t")[0]
    return name[2:] if name.startswith(("a/", "b/")) else name


def _scheme(text: str) -> str | None:
    found = _URI.match(text.strip())
    return (found[1] or found[2]).lower() if found else None


def _may_be_path(text: str) -> bool:
    return "\n" not in text.strip() and len(text) <= _MAX_PATH_LENGTH


def _with_real_base(globs: Sequence[str], directory: str) -> Iterator[str]:
    """Yield the globs, each also with symbolic links in its literal prefix resolved."""
    for glob in globs:
        yield glob
        whole = os.path.join(directory, home_expanded(glob))
        fixed = re.split(r"[*?]", whole, maxsplit=1)[0]
        base = whole if fixed == whole else fixed.rpartition("/")[0]
        real = _real(base)
        if base and real is not None and real != base and not re.search(r"[*?]", real):
            yield real + whole[len(base) :]


def _expanded(word: str, cwd: str) -> list[str]:
    """Expand braces in a word, and wildcards in its last path component."""
    alternatives, found = [os.path.join(cwd, home_expanded(word))], []
    for _ in range(50):
        whole = alternatives.pop(0)
        before, _, rest = whole.rpartition("{")
        inner, closed, after = rest.partition("}")
        if not closed or "{" not in whole:
            alternatives.insert(0, whole)
            break
        alternatives += [before + each + after for each in inner.split(",")[:50]]
    for each in alternatives:
        directory, _, name = each.rpartition("/")
        found.append(each)
        if not _WILD.isdisjoint(name) and _WILD.isdisjoint(directory):
            try:
                with os.scandir(directory or "/") as entries:
                    names = [entry.name for entry in itertools.islice(entries, 1000)]
            except (OSError, ValueError):
                continue
            found += [f"{directory}/{one}" for one in fnmatch.filter(names, name)][:100]
    return found[:200]


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


def _real(path: str) -> str | None:
    try:
        return os.path.realpath(path) if path.startswith("/") else None
    except (ValueError, OSError, RecursionError):
        return None


def _normal(path: str) -> str:
    normal = os.path.normpath(path)
    return normal[1:] if normal.startswith("//") else normal


def _below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"
