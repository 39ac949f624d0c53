"""Diffs in protocol versions 1 and 2. Pure.

Version 1 has the old and the new text of one file, version 2 operations on files and a git patch.
The patch of a diff of version 1 has all its lines as context, so its texts can be read from it
again. A diff of version 2 becomes one of version 1 for each hunk of its patch; what no hunk shows,
such as the move of a file, is a line of text.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any, Final

from proxies.v1_v2.members import Json, objects, text_block

__all__ = ["diff_to_v1", "diff_to_v2"]

_MAX_COMPARED: Final = 10_000
"""Lines of a text that is compared with the other one; more are replaced as a whole."""
_NO_NEWLINE: Final = "\\ No newline at end of file"
_HUNK: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def diff_to_v2(diff: Json) -> Json:
    """A diff of version 1, with the same other members."""
    path, old, new = diff.get("path"), diff.get("oldText"), diff.get("newText")
    if not isinstance(path, str) or not isinstance(new, str):
        return diff
    operation = "modify" if isinstance(old, str) else "add"
    change = {"operation": operation, "path": path, "fileType": "text"}
    rest = {k: v for k, v in diff.items() if k not in ("path", "oldText", "newText")}
    text = _git_patch(path, old if isinstance(old, str) else None, new)
    return {**rest, "changes": [change], "patch": {"format": "git_patch", "text": text}}


def diff_to_v1(diff: Json) -> list[Json]:
    """The items of content that show a diff of version 2; at least one."""
    patch = diff.get("patch")
    text = patch.get("text") if isinstance(patch, dict) else None
    hunks = _hunks(text) if isinstance(text, str) else {}
    shown: list[Json] = []
    rest = {k: v for k, v in diff.items() if k not in ("changes", "patch")}
    for change in objects(diff.get("changes")):
        operation, path = change.get("operation"), change.get("path")
        found = hunks.pop(path, ()) if isinstance(path, str) else ()
        if not found or operation not in ("add", "modify"):
            shown.append(_line(change))
        for old, new in found:
            old_text = None if operation == "add" and not old else old
            shown.append({**rest, "path": path, "oldText": old_text, "newText": new})
    if isinstance(text, str) and text and not any("newText" in item for item in shown):
        shown.append({"type": "content", "content": text_block(f"```diff\n{text}\n```")})
    return shown or [{"type": "content", "content": text_block("[an empty diff]")}]


def _line(change: Json) -> Json:
    """The content that names a change of a file."""
    from_path = change.get("oldPath")
    names = f"{from_path} → {change.get('path')}" if from_path else str(change.get("path"))
    kinds = [str(change[name]) for name in ("fileType", "mimeType") if change.get(name)]
    details = f" ({', '.join(kinds)})" if kinds else ""
    return {"type": "content", "content": text_block(f"{change.get('operation')} {names}{details}")}


# -- the patch of two texts ------------------------------------------------------------------------


def _git_patch(path: str, old: str | None, new: str) -> str:
    before, after = _lines(old or ""), _lines(new)
    header = [f"diff --git {path} {path}"]
    header += ["new file mode 100644", "--- /dev/null"] if old is None else [f"--- {path}"]
    header += [f"+++ {path}", f"@@ -{_range(before)} +{_range(after)} @@"]
    body: list[str] = []
    for sign, line in _changes(before, after):
        body.append(sign + line.removesuffix("\n"))
        if not line.endswith("\n"):
            body.append(_NO_NEWLINE)
    return "\n".join([*header, *body]) + "\n"


def _lines(text: str) -> list[str]:
    """The lines of a text with their newlines; only `\\n` ends a line in a patch."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _range(lines: list[str]) -> str:
    return f"{1 if lines else 0},{len(lines)}"


def _changes(before: list[str], after: list[str]) -> Iterator[tuple[str, str]]:
    """The lines of both texts with their sign: removed, added or both."""
    opcodes = [("replace", 0, len(before), 0, len(after))]
    if max(len(before), len(after)) <= _MAX_COMPARED:
        opcodes = [*difflib.SequenceMatcher(None, before, after).get_opcodes()]
    for tag, i, j, k, m in opcodes:
        if tag == "equal":
            yield from ((" ", line) for line in before[i:j])
        else:
            yield from (("-", line) for line in before[i:j])
            yield from (("+", line) for line in after[k:m])


# -- the texts of a patch --------------------------------------------------------------------------


def _hunks(patch: str) -> dict[str, list[tuple[str, str]]]:
    """Old and new text of each hunk, by the path of the file; empty if the text has no hunk."""
    found: dict[str, list[tuple[str, str]]] = {}
    lines = patch.split("\n")
    path = ""
    position = 0
    while position < len(lines):
        line = lines[position]
        position += 1
        if line.startswith(("--- ", "+++ ")):
            name = _path(line[4:])
            path = name if name != "/dev/null" else path
        elif header := _HUNK.match(line):
            old, new, position = _hunk(lines, position, header)
            found.setdefault(path, []).append((old, new))
    return {**{name.removeprefix("b"): each for name, each in found.items()}, **found}


def _path(name: str) -> str:
    """The path in a `---` or `+++` line; git puts a tab behind names with spaces."""
    return name.rstrip("\r").split("\t")[0].strip('"')


def _hunk(lines: list[str], position: int, header: Any) -> tuple[str, str, int]:
    """Old and new text of the lines behind the header of a hunk, and where they end."""
    left = [int(header[2] or 1), int(header[4] or 1)]
    texts: tuple[list[str], list[str]] = ([], [])
    sides: tuple[int, ...] = ()
    while position < len(lines):
        line = lines[position]
        if line.startswith("\\"):
            for side in sides:
                texts[side][-1] = texts[side][-1].removesuffix("\n")
        elif max(left) <= 0:
            break
        else:
            sides = {"-": (0,), "+": (1,)}.get(line[:1], (0, 1))
            for side in sides:
                texts[side].append(line[1:] + "\n")
                left[side] -= 1
        position += 1
    return "".join(texts[0]), "".join(texts[1]), position
