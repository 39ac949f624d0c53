"""Bounds the memory of the tool calls that a plugin remembers.

An agent can announce calls that never end, with outputs of any size, in any number of sessions.
When it has sent `_MAX_BYTES` about tool calls, the remembered ones are measured; if they are larger
than half of that, the largest lose their outputs, and if that is not enough, they are forgotten.
The members that permission rules read (kind, input, paths, diffs) stay as long as possible.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from conductor.log import get_logger
from conductor.proxy.chain_info import ChainInfo
from conductor.proxy.conversion import encode
from conductor.proxy.sessions import Session
from conductor.proxy.tool_calls import AgentToolCall

__all__ = ["bound_tool_calls"]

_MAX_BYTES: Final = 32 * 1024 * 1024

log: Final = get_logger()


def bound_tool_calls(info: ChainInfo, sessions: Iterable[Session], size: int) -> None:
    """Count `size` bytes about tool calls; drop what is too much, see the module."""
    info.tool_call_bytes += size
    if info.tool_call_bytes <= _MAX_BYTES:
        return
    kept = [
        (_size(call.members), call, calls)
        for session in sessions
        for calls in (session.call_table.open, session.call_table.asked)
        for call in calls.values()
    ]
    kept.sort(key=lambda each: each[0])
    total = sum(size for size, _, _ in kept)
    while kept and total > _MAX_BYTES // 2:
        size, call, calls = kept.pop()
        _drop_outputs(call)
        left = _size(call.members)
        if left > size // 2:
            del calls[call.id]
            left = 0
        total -= size - left
        if not info.forgets_tool_calls:
            info.forgets_tool_calls = True
            log.warning("outputs of tool calls forgotten: the agent leaves too many unfinished")
    info.tool_call_bytes = total


def _size(value: Any) -> int:
    return len(encode(value) or b"")


def _drop_outputs(call: AgentToolCall) -> None:
    """Drop what a tool has returned; files that it changes and commands that it runs stay."""
    call.members.pop("rawOutput", None)
    content = call.content
    if isinstance(content, list):
        call.members["content"] = [
            each for each in content if not isinstance(each, dict) or each.get("type") != "content"
        ]
