"""`notices`: shows an agent's notices in a client that cannot.

A notice is information for the user outside of the conversation, such as "rate limit reached". An
agent sends notices only to a client that announces `session.notices`; to others it may say nothing.
This proxy announces the capability and turns each notice into a line of the agent's text. A client
that has the capability gets the notices as they are.
"""

from __future__ import annotations

from typing import Any

import attrs

from conductor.proxy import Forward, Proxy, Session, on, on_update
from proxies.shared.capabilities import announce
from proxies.shared.client_texts import notice_text

__all__ = ["NoticesAsText"]


@attrs.define
class NoticesAsText(Proxy):
    """Turn notices into text for a client that does not show them."""

    versions = (1,)  # in version 2 every client shows notices

    _is_needed: bool = attrs.field(default=False, init=False)

    @on("initialize")
    async def announce(self, request: dict[str, Any], forward: Forward) -> Any:
        self._is_needed = announce(request, {}, "session", "notices")
        return await forward()

    @on_update("notice")
    async def show(self, session: Session, update: dict[str, Any], forward: Forward) -> None:
        if not self._is_needed:
            await forward()
            return
        content = {"type": "text", "text": notice_text(update)}
        chunk = {"sessionUpdate": "agent_message_chunk", "content": content}
        if "_meta" in update:
            chunk["_meta"] = update["_meta"]
        await self.client.update(session.id, chunk)
