"""Slash commands that a proxy answers itself: advertised to the client, never seen by the agent.

The two versions of the protocol differ in how a turn ends: in the answer to the prompt (1), or in
an update some time after it (2).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import attrs

from conductor.proxy import ClientPeer

__all__ = ["SlashCommand", "answer", "say"]

_ids: Iterator[int] = itertools.count(1)


@attrs.frozen
class SlashCommand:
    """One command: `/name`, and what it is for."""

    name: str
    description: str

    def called_in(self, params: dict[str, Any]) -> bool:
        """Whether a prompt is this command: its last text is, as proxies put theirs before."""
        texts = [block.get("text", "") for block in params["prompt"] if block.get("type") == "text"]
        return bool(texts) and texts[-1].split()[:1] == [f"/{self.name}"]

    def advertise(self, holder: dict[str, Any]) -> dict[str, Any]:
        """`holder` (an update, or a version 2 session's result) with the command added.

        One of the agent's with the same name goes: nobody can reach it.
        """
        others = [
            command
            for command in holder.get("availableCommands") or ()
            if command.get("name") != self.name
        ]
        ours = {"name": self.name, "description": self.description}
        return {**holder, "availableCommands": [*others, ours]}


async def answer(
    client: ClientPeer,
    params: dict[str, Any],
    text: str,
    *,
    version: int,
    stop_reason: str = "end_turn",
) -> dict[str, Any]:
    """Say `text` as the whole turn of a prompt, and return what to answer the prompt with."""
    session_id = params["sessionId"]
    if version == 1:
        await say(client, session_id, text, version=1)
        return {"stopReason": stop_reason}

    async def update(kind: str, **members: Any) -> None:
        await client.update(session_id, {"sessionUpdate": kind, **members})

    prompt_id = f"conductor-prompt-{next(_ids)}"
    await update("user_message", messageId=prompt_id, content=params["prompt"])
    await update("state_update", state="running")
    await say(client, session_id, text, version=version)
    await update("state_update", state="idle", stopReason=stop_reason)
    return {"messageId": prompt_id}


async def say(client: ClientPeer, session_id: str, text: str, *, version: int) -> None:
    """Show a text as a message of its own."""
    if version == 1:
        await client.say(session_id, text)
        return
    content = [{"type": "text", "text": text}]
    id = f"conductor-message-{next(_ids)}"
    await client.update(
        session_id, {"sessionUpdate": "agent_message", "messageId": id, "content": content}
    )
