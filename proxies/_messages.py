"""Members of messages that differ between the two protocol versions.

Proxies that read only a few members take plain dicts instead of schema types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from proxies._slash_commands import is_handled

__all__ = [
    "OUTSIDE_TURN_UPDATES",
    "merge_tool_call",
    "opened_session",
    "permission_tool_call",
    "turn_end",
    "update_of_kind",
]

OUTSIDE_TURN_UPDATES = frozenset(
    {
        "available_commands_update",
        "config_option_update",
        "current_mode_update",
        "session_info_update",
        "usage_update",
    }
)
"""Updates that may arrive between chunks of one message without ending it."""

_MAX_CALLS = 1000
_ESCAPED = re.compile(rb"\\u00(?:5[fF]|[67][0-9a-fA-F])")
"""A JSON escape of a letter or underscore, which the name of a kind may contain."""
_FINISHED = ("completed", "failed", "cancelled")


def opened_session(params: dict[str, Any], result: dict[str, Any] | None) -> str:
    """Return the id of the session opened by `session/new`, `load`, `resume` or `fork`."""
    opened = (result or {}).get("sessionId")
    return str(opened if opened is not None else params["sessionId"])


def update_of_kind(raw: bytes, *kinds: str) -> dict[str, Any] | None:
    """Return the params of `session/update` if it is of one of these kinds, else `None`.

    Other kinds are not decoded: most updates are chunks, and there are many.
    """
    if not any(kind.encode() in raw for kind in kinds) and _ESCAPED.search(raw) is None:
        return None
    params: dict[str, Any] = json.loads(raw)
    return params if params["update"].get("sessionUpdate") in kinds else None


def turn_end(update: dict[str, Any]) -> bool:
    """Whether a version 2 update ends a turn; in version 1 the response to the prompt does."""
    return (
        update.get("sessionUpdate") == "state_update"
        and update.get("state") == "idle"
        and update.get("stopReason") is not None
        and not is_handled(update)
    )


def merge_tool_call(calls: dict[str, dict[str, Any]], update: dict[str, Any]) -> dict[str, Any]:
    """Merge a tool call, or an update of one, into `calls`; return the merged tool call.

    A finished tool call is removed, and the oldest if there are more than 1000.
    """
    id = str(update.get("toolCallId", ""))
    known = {**calls.pop(id, {}), **{k: v for k, v in update.items() if v is not None}}
    if known.get("status") not in _FINISHED:
        calls[id] = known
        if len(calls) > _MAX_CALLS:
            del calls[next(iter(calls))]
    return known


def permission_tool_call(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tool call of a permission request; empty if it is not about a tool call."""
    call = params.get("toolCall")
    if call is None and isinstance(subject := params.get("subject"), dict):
        call = subject.get("toolCall")
    return call if isinstance(call, dict) else {}
