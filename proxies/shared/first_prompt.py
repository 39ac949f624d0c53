"""A text before the first prompt of a session, and out of the prompts that the agent sends back.

Agents send the user's messages back when a session is loaded, and some with every prompt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conductor.proxy import Forward, Prompt, Session

__all__ = ["forward_with", "has_user_text"]


async def forward_with(
    waiting: dict[str, str], session: Session, prompt: Prompt, forward: Forward
) -> Any:
    """Forward a prompt behind the text that waits for the session. A slash command goes without it.
    If the prompt fails, as without a login, or another proxy answers it, the text waits again: the
    agent may not know it."""
    given = waiting.get(session.id, "")
    if not given or not prompt.prepend(given):
        return await forward()
    waiting[session.id], is_taken = "", False
    try:
        result = await forward()
        is_taken = not prompt.answered_by_proxy
    finally:
        if not is_taken and waiting.get(session.id) == "":  # still there, and not set up anew
            waiting[session.id] = given
    return result


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
