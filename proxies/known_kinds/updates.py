"""Updates of kinds that a client of version 1 does not know, as updates that it knows. Pure."""

from __future__ import annotations

from typing import Any, Final

import attrs

from proxies.shared.client_texts import notice_text
from proxies.v1_v2.known_values import known_block
from proxies.v1_v2.members import Json, objects, text_block
from proxies.v1_v2.to_v1 import PlansToV1, V1Features

__all__ = ["CHUNKS", "UnknownUpdates", "known_kinds"]

CHUNKS: Final = frozenset({"user_message_chunk", "agent_message_chunk", "agent_thought_chunk"})
_ALWAYS: Final = CHUNKS | {
    "available_commands_update",
    "config_option_update",
    "current_mode_update",
    "plan",
    "session_info_update",
    "tool_call",
    "tool_call_update",
    "usage_update",
}
_SILENT: Final = frozenset(
    {
        "compaction_summary_chunk",
        "compaction_update",
        "session_message",
        "session_message_chunk",
        "state_update",
        "subagent_update",
        "tool_call_content_chunk",
    }
)
"""Kinds with texts that are not part of the conversation, or are shown elsewhere."""


def known_kinds(features: V1Features) -> frozenset[str]:
    """The kinds of updates of the stable schema, and those that a client announces."""
    announced = {
        "notice": features.notices,
        "compaction_update": features.compaction,
        "compaction_summary_chunk": features.compaction,
        "plan_update": features.plans,
        "plan_removed": features.plans,
        "subagent_update": features.subagents,
        "session_message": features.subagents,
        "session_message_chunk": features.subagents,
    }
    return _ALWAYS | {kind for kind, is_known in announced.items() if is_known}


@attrs.define
class UnknownUpdates:
    """The unknown updates of one session."""

    _plans: PlansToV1 = attrs.field(factory=lambda: PlansToV1(knows_ids=False), init=False)

    def shown(self, update: Json) -> list[Json]:
        """The updates that show one of a kind that is not known, without `_meta`; none if there is
        nothing to show."""
        kind = str(update.get("sessionUpdate"))
        match kind:
            case "notice":
                return [_message("agent_message_chunk", text_block(notice_text(update)))]
            case "plan_update":
                return self._plans.update(update)
            case "plan_removed":
                return self._plans.removed(update)
        if kind.startswith("_") or kind in _SILENT:
            return []
        return [_message(_role(kind), known_block(block)) for block in _blocks(update)]


def _role(kind: str) -> str:
    if kind.startswith("user"):
        return "user_message_chunk"
    return "agent_thought_chunk" if "thought" in kind else "agent_message_chunk"


def _blocks(update: Json) -> list[Json]:
    """The readable content of an update of any kind: content blocks, or a title and a
    description."""
    content = update.get("content")
    blocks = content if isinstance(content, list) else [content]
    found = [each for each in objects(blocks) if isinstance(each.get("type"), str)]
    if found:
        return found
    texts = [update.get(name) for name in ("title", "description", "message", "text")]
    if isinstance(content, str):
        texts.append(content)
    said = [each for each in texts if isinstance(each, str) and each]
    return [text_block(f"[{': '.join(said)}]\n")] if said else []


def _message(kind: str, block: Any) -> Json:
    return {"sessionUpdate": kind, "content": block}
