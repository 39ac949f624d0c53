"""Texts in a tool call that are paths, or may be: by the names of their members, and by their form.

In: a tool call, of either protocol version. Out: texts; what they mean is decided in
`proxies.shared.paths`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from conductor.json_values import NestedTooDeeply, check_depth
from proxies.shared.paths import home_expanded, leads_out

__all__ = ["base_texts", "key_words", "parsed_json", "path_texts", "strings"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


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
_MAX_JSON: Final = 1024 * 1024
"""Maximum characters of JSON in a text."""
_STRUCTURED: Final = _words("edits changes")
"""Members of `_CONTENTS` that are not text: as a text, they are JSON."""
_TEXTS: Final = _CONTENTS - _STRUCTURED
_UNREADABLE: Final = {"path": "\0"}
"""In place of JSON that is not read: a path that cannot be resolved."""
_PATCH_FILE: Final = re.compile(  # of `apply_patch`
    r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+)$", re.M
)
_DIFF_FILE: Final = re.compile(r"^(?:---|\+\+\+|(?:rename|copy) (?:from|to)|Index:) (\S.*)$", re.M)
_GIT_FILES: Final = re.compile(r"^diff --git (\S.*)$", re.M)
"""For a binary or empty file, or a change of mode, no other line has the name."""
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\([0-7]{1,3}|.)")


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


def key_words(key: str) -> list[str]:
    """Return the words of a member's name, the same for `oldFilePath` and `old_file_path`."""
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", key).lower().replace("-", "_").split("_")


def path_texts(call: Mapping[str, Any]) -> tuple[list[str], list[str], list[str]]:
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
            found += _diff_files(text)
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
            if leads_out(text, is_list=name in _SELECTIONS):
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


def base_texts(given: Any) -> Iterator[str]:
    """Yield the members of a raw input that relative paths may be relative to."""
    for key, text in given.items() if isinstance(given, dict) else ():
        if isinstance(text, str) and "".join(key_words(key)) in _BASES:
            yield home_expanded(text)


def _json(key: str, text: str) -> Any:
    """Parse a text that some agents send as JSON; `None` if it is none, is prose or a file."""
    text = text.strip(" \t\r\n\ufeff")
    if text[:1] not in ("{", "["):
        return None
    if "".join(key_words(key)) in _TEXTS | _PROSE:
        return None
    if len(text) > _MAX_JSON:
        return _UNREADABLE
    try:
        return parsed_json(text)
    except NestedTooDeeply:
        return _UNREADABLE
    except ValueError:
        return None


def parsed_json(text: str) -> Any:
    """Parse JSON. The values of a member that occurs several times become a list of lists, as
    parsers differ in which one they read: no command, and paths that are all checked."""
    try:
        value = json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise NestedTooDeeply from None
    check_depth(text, value)
    return value


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        for name in found:
            values = [[value] for each, value in members if each == name]
            found[name] = values if len(values) > 1 else values[0][0]
    return found


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


def _looks_like_path(text: str) -> bool:
    begins = text.startswith(("~", "$", "file:")) or text in (".", "..")
    return begins or "/" in text or "\\" in text or "%2" in text


def _is_one_path(text: str) -> bool:
    """Whether a text that should be prose is a path."""
    return len(text.split()) == 1 and (_looks_like_path(text) or "." in text.rstrip("."))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _diff_files(text: str) -> Iterator[str]:
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


def _without_prefix(name: str) -> str:
    name = name.partition("\t")[0]
    return name[2:] if name.startswith(("a/", "b/")) else name
