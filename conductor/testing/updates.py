"""Builders of session updates and of whole turns, for both versions of the protocol. Pure.

    from conductor.testing import FakeAgent, updates

    agent = FakeAgent(turns=[[updates.thought("Hm"), updates.tool_call("1", "Read a"), "Done."]])

Each returns a plain dictionary that a test may change: the `update` member of a `session/update`,
which is a step of a `FakeAgent`'s turn and an argument of its `update(session, …)`. What differs
between the versions depends on `version`. Further members are keywords, as they are written in
JSON: `chunk("Hello", messageId="m1")`, `tool_call("1", "Read a", rawInput={…})`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

__all__ = [
    "Content",
    "Update",
    "Version",
    "chunk",
    "message",
    "notification",
    "params",
    "plan",
    "state",
    "thought",
    "tool_call",
    "tool_call_update",
    "turn",
    "usage",
]

Update: TypeAlias = dict[str, Any]
"""The `update` member of a `session/update`."""
Version: TypeAlias = Literal[1, 2]
"""The version of the protocol."""
Content: TypeAlias = str | Mapping[str, Any]
"""A text, or any other content block as a dictionary."""


def chunk(content: Content, kind: str = "agent_message_chunk", **members: Any) -> Update:
    """A chunk of the agent's answer, or of another message; version 2 requires `messageId`."""
    return {"sessionUpdate": kind, "content": _block(content), **members}


def thought(content: Content, **members: Any) -> Update:
    """A chunk of the agent's reasoning; version 2 requires `messageId`."""
    return chunk(content, "agent_thought_chunk", **members)


def message(id: str, *content: Content, kind: str = "agent_message", **members: Any) -> Update:
    """A whole message of version 2, which replaces the content that its id had."""
    blocks = [_block(each) for each in content]
    return {"sessionUpdate": kind, "messageId": id, "content": blocks} | members


def tool_call(id: str, title: str, *, version: Version = 1, **members: Any) -> Update:
    """A new tool call, pending and of kind "other" if the members do not tell."""
    kind = "tool_call" if version == 1 else "tool_call_update"
    call = {"toolCallId": id, "title": title, "kind": "other", "status": "pending"}
    return {"sessionUpdate": kind, **call, **members}


def tool_call_update(
    id: str, status: str | None = None, text: str | None = None, **members: Any
) -> Update:
    """A change of a tool call; `text` is its whole content."""
    update: Update = {"sessionUpdate": "tool_call_update", "toolCallId": id}
    if status is not None:
        update["status"] = status
    if text is not None:
        update["content"] = [{"type": "content", "content": _block(text)}]
    return update | members


def plan(*entries: str | Mapping[str, Any], version: Version = 1, id: str = "plan") -> Update:
    """A whole plan; a text is a pending entry of medium priority. `id` is for version 2."""
    written = [
        {"content": each, "priority": "medium", "status": "pending"}
        if isinstance(each, str)
        else dict(each)
        for each in entries
    ]
    if version == 1:
        return {"sessionUpdate": "plan", "entries": written}
    items = {"type": "items", "planId": id, "entries": written}
    return {"sessionUpdate": "plan_update", "plan": items}


def usage(used: int, size: int = 200_000, *, cost: float | None = None, **members: Any) -> Update:
    """Tokens of the context window, and the cost so far in USD."""
    update: Update = {"sessionUpdate": "usage_update", "used": used, "size": size}
    if cost is not None:
        update["cost"] = {"amount": cost, "currency": "USD"}
    return update | members


def state(name: str, stop_reason: str | None = None, **members: Any) -> Update:
    """A state of a session in version 2: `running`, `requires_action`, `idle`, `unknown`, or one
    that is not known yet. An idle one tells why the turn has ended."""
    update: Update = {"sessionUpdate": "state_update", "state": name}
    return update | ({} if stop_reason is None else {"stopReason": stop_reason}) | members


def notification(session: str, update: Mapping[str, Any]) -> dict[str, Any]:
    """The message `session/update`, without `jsonrpc`."""
    return {"method": "session/update", "params": params(session, update)}


def params(session: str, update: Mapping[str, Any]) -> dict[str, Any]:
    """The params of `session/update`."""
    return {"sessionId": session, "update": update}


def turn(
    prompt: Mapping[str, Any],
    *updates: str | Mapping[str, Any],
    version: Version = 1,
    stop_reason: str = "end_turn",
) -> list[dict[str, Any]]:
    """All messages with which an agent answers a prompt, without `jsonrpc`, in order.

    `prompt` is the request as it was received. A text is a chunk of the answer. In version 1 the
    response ends the turn; in version 2 it comes first, and states begin and end the turn. For
    peers that a test plays on the wire: a `FakeAgent` does the same with the steps of its script.
    """
    session = prompt["params"]["sessionId"]
    members = {} if version == 1 else {"messageId": f"answer-{prompt['id']}"}
    steps = [chunk(each, **members) if isinstance(each, str) else each for each in updates]
    if version == 1:
        response = {"id": prompt["id"], "result": {"stopReason": stop_reason}}
        return [*(notification(session, each) for each in steps), response]
    response = {"id": prompt["id"], "result": {"messageId": f"prompt-{prompt['id']}"}}
    steps = [state("running"), *steps, state("idle", stop_reason)]
    return [response, *(notification(session, each) for each in steps)]


def _block(content: Content) -> dict[str, Any]:
    return {"type": "text", "text": content} if isinstance(content, str) else dict(content)
