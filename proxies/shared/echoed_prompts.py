"""Take out of replayed or echoed prompts what a proxy has put before the user's text. Pure.

Agents send the user's messages back when a session is loaded, and some with every prompt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["has_user_text"]


def has_user_text(update: dict[str, Any], without: Callable[[str], str]) -> bool:
    """Change the texts of a user message, and return whether anything of it is left to show.

    `without` returns a text without what was put before it, and the same text if there is nothing.
    """
    content = update.get("content")
    if isinstance(content, list):
        update["content"] = [left for block in content if (left := _without(block, without))]
    elif content is not None:
        update["content"] = _without(content, without)
        return update["content"] is not None
    return True


def _without(block: Any, without: Callable[[str], str]) -> Any:
    """The block with the rest of its text; `None` if nothing is left."""
    shown = block.get("text") if isinstance(block, dict) else None
    if not isinstance(shown, str) or (rest := without(shown)) == shown:
        return block
    return {**block, "text": rest} if rest else None
