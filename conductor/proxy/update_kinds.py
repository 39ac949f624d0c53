"""Filter of `session/update` notifications by kind, on the raw JSON of `params`. Pure.

Most updates are pieces of text. A filter tells from their first bytes that a plugin has no handler
for them, so that they are forwarded without being decoded: 0.6 µs for an update of 100 bytes.

A filter never misses an update of its kinds: members that occur twice or are written with escapes,
and updates with another order of members, pass the filter and are decoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from conductor.jsonrpc.messages import Payload

__all__ = ["KINDS", "UpdateFilter", "kind_of", "meant_kind", "update_filter"]

KINDS: Final = frozenset(
    {
        "agent_message",
        "agent_message_chunk",
        "agent_thought",
        "agent_thought_chunk",
        "available_commands_update",
        "compaction_summary_chunk",
        "compaction_update",
        "config_option_update",
        "current_mode_update",
        "cursor_update",
        "notice",
        "plan",
        "plan_removed",
        "plan_update",
        "prompt_suggestions_update",
        "replay_complete",
        "session_info_update",
        "session_message",
        "session_message_chunk",
        "state_update",
        "subagent_update",
        "terminal_output_chunk",
        "terminal_update",
        "tool_call",
        "tool_call_content_chunk",
        "tool_call_update",
        "usage_update",
        "user_message",
        "user_message_chunk",
    }
)
"""The kinds of updates that versions 1 and 2 of the protocol define."""

UpdateFilter: TypeAlias = Callable[[Payload | None], bool]
"""Whether an update may be of one of the kinds."""

_head: Final = re.compile(
    rb'\{"sessionId":"[^"\\]*","update":\{(?:"messageId":"[^"\\]*",)?"sessionUpdate":"([^"\\]*)"'
)
"""The start of an update as most agents write it."""
_escaped: Final = re.compile(rb"\\u00(?:5[5fF]|[67][0-9a-fA-F])")
"""A letter of a kind or of `sessionUpdate`, escaped."""


def meant_kind(kind: str) -> str | None:
    """The kind that a misspelled one means; `None` if it is right or may be of an extension."""
    if kind in KINDS or kind.startswith("_"):
        return None
    import difflib

    near = difflib.get_close_matches(kind, sorted(KINDS), n=1, cutoff=0.85)
    return near[0] if near else None


def kind_of(raw: bytes) -> bytes | None:
    """The kind of an update; `None` if it cannot be told from the first bytes."""
    head = _head.match(raw)
    if head is None or raw.count(b'"sessionUpdate"') != 1:
        return None
    if raw.find(b"\\") >= 0 and _escaped.search(raw) is not None:
        return None
    return head[1]


def update_filter(kinds: Iterable[str]) -> UpdateFilter:
    """Return the filter of these kinds."""
    wanted = frozenset(kind.encode() for kind in kinds)

    def passes(params: Payload | None) -> bool:
        raw = params if type(params) is bytes else bytes(params or b"")
        if raw.find(b"\\") >= 0 and _escaped.search(raw) is not None:
            return True
        head = _head.match(raw)
        if head is not None and raw.count(b'"sessionUpdate"') == 1:
            return head[1] in wanted
        return any(raw.find(kind) >= 0 for kind in wanted)

    return passes
