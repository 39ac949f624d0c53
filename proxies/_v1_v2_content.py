"""Content blocks and the content of tool calls, in protocol versions 1 and 2. Pure.

Content blocks are the same, but version 2 is open for other types: version 1 gets a text for them.
The content of a tool call differs in diffs (`_v1_v2_diffs`) and terminals: those of version 2
belong to the agent, and are texts in version 1 (`_v1_v2_terminals`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proxies._v1_v2_diffs import diff_to_v1, diff_to_v2
from proxies._v1_v2_members import Json, text_block

__all__ = ["convert_block", "convert_blocks", "tool_content_to_v1", "tool_content_to_v2"]

_BLOCKS = frozenset({"text", "image", "audio", "resource_link", "resource"})


def convert_block(block: Any, to_version: int) -> Any:
    """A content block; for version 1 one of another type is a text that names the type."""
    if to_version == 2 or not isinstance(block, dict) or block.get("type") in _BLOCKS:
        return block
    return text_block(f"[content of type {block.get('type')}]")


def convert_blocks(blocks: Any, to_version: int) -> Any:
    if not isinstance(blocks, list):
        return blocks
    return [convert_block(block, to_version) for block in blocks]


def tool_content_to_v2(item: Json) -> Json:
    """One item of a tool call's content."""
    return diff_to_v2(item) if item.get("type") == "diff" else item


def tool_content_to_v1(item: Json, terminal_text: Callable[[str], str]) -> list[Json]:
    """The items that show one item of a tool call's content.

    `terminal_text` returns what a terminal of the agent shows, by its id.
    """
    match item.get("type"):
        case "content":
            return [{**item, "content": convert_block(item.get("content"), 1)}]
        case "diff":
            return diff_to_v1(item)
        case "terminal":
            text = terminal_text(str(item.get("terminalId")))
        case kind:
            text = f"[content of type {kind}]"
    return [{"type": "content", "content": text_block(text)}]
