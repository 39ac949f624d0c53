"""A text before the next prompt of a session that the agent takes."""

from __future__ import annotations

from typing import Any

from conductor.proxy import Forward, Prompt, Session

__all__ = ["forward_with"]


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
