"""Text and diffs of content blocks and tool calls, in both versions of the protocol. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

__all__ = [
    "FileDiff",
    "as_mapping",
    "content_text",
    "diffs_of",
    "json_text",
    "message_text",
    "notice_text",
    "options_of",
    "paths_of",
    "raw_input_lines",
    "tool_call_of",
    "unseen_paths",
]

_LONGEST_INPUT: Final = 4000
_LINE: Final = 200
_MAX_DIFFED: Final = 2000
"""Maximum number of lines of a file for a diff, which takes quadratic time."""


@attrs.frozen
class FileDiff:
    """The change of one file, as lines of a unified diff without its head."""

    path: str
    lines: tuple[str, ...]


def content_text(content: Any) -> str:
    """The text of a content block; of another block its name in brackets."""
    match content:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource_link", "uri": str(uri)}:
            return f"[{uri}]"
        case {"type": "resource", "resource": {"uri": str(uri)}}:
            return f"[{uri}]"
        case {"type": str(type)}:
            return f"[{type}]"
    return ""


def message_text(update: Mapping[str, Any]) -> str:
    """The text of a whole message of version 2."""
    content = update.get("content")
    return "".join(map(content_text, content if isinstance(content, list) else ()))


def notice_text(update: Mapping[str, Any]) -> str:
    about, more = f"{update.get('severity')}: {update.get('title')}", update.get("description")
    return f"{about}; {more}" if more else about


def diffs_of(content: Iterable[Any]) -> tuple[FileDiff, ...]:
    """The diffs in the content of a tool call."""
    found: list[FileDiff] = []
    for item in content:
        match item:
            case {"type": "diff", "path": str(path), "newText": str(new)}:
                old = item.get("oldText")
                found.append(FileDiff(path, _unified(old if isinstance(old, str) else "", new)))
            case {"type": "diff", "patch": {"text": str(patch)}}:
                found.append(FileDiff(_paths(item), _patch_lines(patch)))
            case {"type": "diff"}:
                found.append(FileDiff(_paths(item), ()))
    return tuple(found)


def tool_call_of(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tool call that a permission request is about, in both versions of the protocol."""
    subject = as_mapping(request.get("subject"))
    if subject.get("type") == "command":
        return {"rawInput": {"command": subject.get("command")}}
    return as_mapping(request.get("toolCall") or subject.get("toolCall"))


def options_of(request: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The options of a permission request; malformed ones are left out."""
    found = request.get("options")
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def paths_of(call: Mapping[str, Any]) -> tuple[str, ...]:
    """The files that a tool call names as its locations."""
    found = call.get("locations")
    paths = [as_mapping(each).get("path") for each in (found if isinstance(found, list) else ())]
    return tuple(each for each in paths if isinstance(each, str) and each)


def unseen_paths(paths: Sequence[str], diffs: Iterable[FileDiff], seen: Iterable[str]) -> list[str]:
    """The paths that are neither in a diff nor in a text that the user sees."""
    text = "\n".join([*seen, *(each.path for each in diffs)])
    return [each for each in dict.fromkeys(paths) if each not in text]


def raw_input_lines(raw_input: Any) -> list[str]:
    """The arguments of a tool as JSON, in short lines: all that the user decides about is seen.
    Of a long text the begin and the end."""
    text = json_text(raw_input)
    if len(text) > _LONGEST_INPUT:
        half = _LONGEST_INPUT // 2
        text = f"{text[:half]} … {len(text) - 2 * half} more characters … {text[-half:]}"
    return [text[start : start + _LINE] for start in range(0, len(text), _LINE)]


def json_text(value: Any) -> str:
    """The value as JSON, also what only Python's own encoder takes."""
    from conductor.schema.convert import dumps

    return dumps(value).decode()


def as_mapping(value: Any) -> Mapping[str, Any]:
    """The value, or an empty mapping in place of anything else."""
    return value if isinstance(value, Mapping) else {}


def _unified(old: str, new: str) -> tuple[str, ...]:
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > _MAX_DIFFED:
        if not before:
            return tuple(f"+{line}" for line in after)
        return (f"@@ {len(before)} lines, {len(after)} after the change: too many to compare @@",)
    return tuple(difflib.unified_diff(before, after, lineterm="", n=2))[2:]


def _patch_lines(patch: str) -> tuple[str, ...]:
    """The hunks of a git patch, without the head of each file."""
    lines = [line for line in patch.splitlines() if not line.startswith(("--- ", "+++ "))]
    return tuple(line for line in lines if line.startswith((" ", "+", "-", "@", "\\")))


def _paths(diff: Mapping[str, Any]) -> str:
    changes = diff.get("changes")
    changed = [as_mapping(each) for each in changes] if isinstance(changes, list) else []
    return ", ".join(f"{each.get('operation')} {each.get('path')}" for each in changed)
