"""Content blocks and enumeration values in protocol versions 1 and 2. Pure.

Version 2 is open for other values: for a client of version 1, one that its schema does not have
becomes the nearest that it has, and a block of another type a text. `_meta` keeps the value, or the
whole block, as `ORIGINAL`. The functions `know_…` change a decoded message in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxies.v1_v2.members import Json, each, objects, text_block

__all__ = [
    "BLOCKS",
    "ENTRY_STATUSES",
    "ORIGINAL",
    "PERMISSIONS",
    "PRIORITIES",
    "STOP_REASONS",
    "TOOL_KINDS",
    "TOOL_STATUSES",
    "convert_block",
    "convert_blocks",
    "convert_suggestions",
    "know_commands",
    "know_options",
    "know_permission",
    "know_plan",
    "know_tool_call",
    "known_block",
]

ORIGINAL: Final = "acp-conductor/original"
"""Member of `_meta`."""
STOP_REASONS: Final = frozenset(
    {"end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"}
)
BLOCKS: Final = frozenset({"text", "image", "audio", "resource_link", "resource"})
_TOOL_CONTENT: Final = frozenset({"content", "diff", "terminal"})
TOOL_KINDS: Final = frozenset(
    {"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode"}
    | {"other"}
)
TOOL_STATUSES: Final = frozenset({"pending", "in_progress", "completed", "failed"})
ENTRY_STATUSES: Final = frozenset({"pending", "in_progress", "completed"})
PRIORITIES: Final = frozenset({"high", "medium", "low"})
PERMISSIONS: Final = frozenset({"allow_once", "allow_always", "reject_once", "reject_always"})
_ENDS: Final = {"cancelled": "failed", "canceled": "failed", "error": "failed"}
_ENTRY_ENDS: Final = {"cancelled": "completed", "canceled": "completed", "failed": "completed"}
_ROLES: Final = ("assistant", "user")
_TEXTS: Final = ("text", "title", "name", "uri", "url")
"""Members of an unknown block that can stand for it, the best first."""


def convert_block(block: Any, to_version: int) -> Any:
    """A content block."""
    if not isinstance(block, dict):
        return block
    if to_version == 1:
        return known_block(_with_known_audience(block))
    meta = block.get("_meta")
    original = meta.get(ORIGINAL) if isinstance(meta, dict) else None
    is_block = isinstance(original, dict) and isinstance(original.get("type"), str)
    return original if is_block else block


def _with_known_audience(block: Json) -> Json:
    annotations = block.get("annotations")
    if not isinstance(annotations, dict):
        return block
    audience = annotations.get("audience")
    if not isinstance(audience, list) or all(role in _ROLES for role in audience):
        return block
    known = [role for role in audience if role in _ROLES]
    return {**block, "annotations": {**annotations, "audience": known}}


def convert_blocks(blocks: Any, to_version: int) -> Any:
    if not isinstance(blocks, list):
        return blocks
    return [convert_block(block, to_version) for block in blocks]


def convert_suggestions(update: Json, to_version: int) -> Json:
    """A `prompt_suggestions_update`."""

    def convert(suggestion: Json) -> Json:
        return {**suggestion, "prompt": convert_blocks(suggestion.get("prompt"), to_version)}

    return each(update, "suggestions", convert)


def known_block(block: Any) -> Any:
    """A content block, as a text if its type is not known."""
    if not isinstance(block, dict):
        return block
    type = block.get("type")
    if not isinstance(type, str) or type in BLOCKS:
        return block
    texts = (block.get(name) for name in _TEXTS)
    text = next((each for each in texts if isinstance(each, str) and each), None)
    return {**text_block(text or f"[content of type {type}]"), "_meta": _kept(block, block)}


def know_tool_call(call: Json) -> None:
    """A tool call, of an update or a permission request."""
    _know(call, "kind", TOOL_KINDS, {}, "other")
    _know(call, "status", TOOL_STATUSES, _ENDS, "in_progress")
    if isinstance(call.get("content"), list):
        call["content"] = [_tool_content(item) for item in call["content"]]


def _tool_content(item: Any) -> Any:
    if not isinstance(item, dict) or not isinstance(item.get("type"), str):
        return item
    if item["type"] not in _TOOL_CONTENT:  # also a content block without its wrapper
        return {"type": "content", "content": known_block(item)}
    if item["type"] == "content":
        item["content"] = known_block(item.get("content"))
    return item


def know_plan(update: Json) -> None:
    """The entries of a plan."""
    for entry in objects(update.get("entries")):
        _know(entry, "status", ENTRY_STATUSES, _ENTRY_ENDS, "pending")
        _know(entry, "priority", PRIORITIES, {}, "medium")


def know_permission(params: Json) -> None:
    """The params of a permission request."""
    if isinstance(params.get("toolCall"), dict):
        know_tool_call(params["toolCall"])
    for option in objects(params.get("options")):
        kind = option.get("kind")
        if isinstance(kind, str):
            answer = "allow" if "allow" in kind else "reject"
            often = "always" if "always" in kind else "once"
            _know(option, "kind", PERMISSIONS, {}, f"{answer}_{often}")


def know_options(holder: Any, *, booleans: bool) -> None:
    """The configuration options of a session: those of other types are left out, and those that are
    boolean unless the client announces them."""
    types = {"select", "boolean"} if booleans else {"select"}
    options = holder.get("configOptions") if isinstance(holder, dict) else None
    if isinstance(options, list):
        kept = [each for each in options if not _is_other(each, types)]
        if len(kept) < len(options):
            holder["configOptions"] = kept


def _is_other(option: Any, types: set[str]) -> bool:
    type = option.get("type") if isinstance(option, dict) else None
    return isinstance(type, str) and type not in types


def know_commands(update: Json) -> None:
    """Slash commands: an input without a hint is of a type that is not known."""
    for command in objects(update.get("availableCommands")):
        asked = command.get("input")
        if isinstance(asked, dict) and "hint" not in asked:
            _set(command, "input", None)


# --------------------------------------------------------------------------------------------------


def _know(
    holder: Json, name: str, known: frozenset[str], nearest: Mapping[str, str], default: str
) -> None:
    value = holder.get(name)
    if isinstance(value, str) and value not in known:
        _set(holder, name, nearest.get(value, default))


def _set(holder: Json, name: str, value: Any) -> None:
    meta = holder.get("_meta")
    before = meta.get(ORIGINAL) if isinstance(meta, dict) else None
    original = {**(before if isinstance(before, dict) else {}), name: holder[name]}
    holder[name] = value
    holder["_meta"] = _kept(holder, original)


def _kept(holder: Mapping[str, Any], original: Any) -> Json:
    meta = holder.get("_meta")
    return {**(meta if isinstance(meta, dict) else {}), ORIGINAL: original}
