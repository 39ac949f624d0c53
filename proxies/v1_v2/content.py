"""Content blocks and the content of tool calls, in protocol versions 1 and 2. Pure.

Content blocks are the same, but version 2 is open for other types and roles: version 1 gets a text
for a type, which keeps the block in `_meta` for the way back, and is not told of the role.
The content of a tool call differs in diffs (`diffs`) and terminals: those of version 2
belong to the agent, and are texts in version 1 (`terminals`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proxies.v1_v2.diffs import diff_to_v1, diff_to_v2
from proxies.v1_v2.known_values import ORIGINAL, known_block
from proxies.v1_v2.members import Json, each, text_block

__all__ = [
    "convert_block",
    "convert_blocks",
    "convert_suggestions",
    "tool_content_to_v1",
    "tool_content_to_v2",
]

_ROLES = ("assistant", "user")


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
    return each(
        update,
        "suggestions",
        lambda one: {**one, "prompt": convert_blocks(one.get("prompt"), to_version)},
    )


def tool_content_to_v2(item: Json) -> Json:
    """One item of a tool call's content."""
    match item.get("type"):
        case "diff":
            return diff_to_v2(item)
        case "content":
            return {**item, "content": convert_block(item.get("content"), 2)}
    return item


def tool_content_to_v1(
    item: Json, terminal_text: Callable[[str], str], *, shows_sessions: bool = False
) -> list[Json]:
    """The items that show one item of a tool call's content.

    `terminal_text` returns what a terminal of the agent shows, by its id. References to sessions
    are for clients that show those of subagents.
    """
    match item.get("type"):
        case "session" if shows_sessions:
            return [item]
        case "content":
            return [{**item, "content": convert_block(item.get("content"), 1)}]
        case "diff":
            return diff_to_v1(item)
        case "terminal":
            block = text_block(terminal_text(str(item.get("terminalId"))))
        case _:
            block = known_block(item)
    return [{"type": "content", "content": block}]
