"""The mark of slash commands that proxies answer, for proxies that are not written on events.

`conductor/proxy/slash_commands.py` describes the mark.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from conductor.proxy import ClientPeer

__all__ = ["HANDLED_KEY", "is_handled", "say"]

HANDLED_KEY: Final = "acp-conductor/handled"
"""Member of `_meta` that marks the commands of proxies, and the responses to them."""

_ids: Iterator[int] = itertools.count(1)


def is_handled(holder: Mapping[str, Any]) -> bool:
    """Whether a command, a response or an update has the mark of a proxy."""
    meta = holder.get("_meta")
    return isinstance(meta, dict) and meta.get(HANDLED_KEY) is True


async def say(client: ClientPeer, session_id: str, text: str, *, version: int) -> None:
    """Send a text as a separate message."""
    if version == 1:
        await client.say(session_id, text)
        return
    content = [{"type": "text", "text": text}]
    id = f"conductor-message-{next(_ids)}"
    await client.update(
        session_id, {"sessionUpdate": "agent_message", "messageId": id, "content": content}
    )
