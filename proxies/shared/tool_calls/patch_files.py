"""Files that a patch names: in the formats of git, of `diff`, and of `apply_patch`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["apply_patch_files", "diff_files"]

_PATCH_FILE: Final = re.compile(
    r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+)$", re.M
)
_DIFF_FILE: Final = re.compile(r"^(?:---|\+\+\+|(?:rename|copy) (?:from|to)|Index:) (\S.*)$", re.M)
_GIT_FILES: Final = re.compile(r"^diff --git (\S.*)$", re.M)
"""For a binary or empty file, or a change of mode, no other line has the name."""
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\([0-7]{1,3}|.)")


def apply_patch_files(text: str) -> list[str]:
    """Return the files that a patch in the format of `apply_patch` names."""
    return _PATCH_FILE.findall(text)


def diff_files(text: str) -> Iterator[str]:
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
