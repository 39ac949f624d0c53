"""Plans in protocol versions 1 and 2. Pure.

Version 1 has one plan of entries (`plan`), and as an announced extension the plans of version 2,
which have ids and several types.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from proxies.v1_v2.members import Json, each, known, without

__all__ = ["PlansToV1", "plan_to_v2"]

_MAIN: Final = "main"
"""The id of the plan of version 1 (RFD v2 plan variants)."""
_TYPES: Final = frozenset({"items", "file", "markdown"})
_PRIORITIES: Final = frozenset({"high", "medium", "low"})
_STATUSES: Final = frozenset({"pending", "in_progress", "completed"})


def plan_to_v2(update: Json) -> Json:
    """The `plan_update` for a `plan`."""
    plan = {"type": "items", "planId": _MAIN, "entries": update.get("entries", [])}
    return {
        **without(update, "entries", "sessionUpdate"),
        "sessionUpdate": "plan_update",
        "plan": plan,
    }


@attrs.define
class PlansToV1:
    """Converts the plans of one session to version 1. `knows_ids`: the client announces `plan`."""

    knows_ids: bool
    _shown: str = attrs.field(default="", init=False)
    """The plan that the client shows, if it shows only one."""

    def update(self, update: Json) -> list[Json]:
        plan = update.get("plan")
        if not isinstance(plan, dict):
            return []
        kind = plan.get("type")
        if kind == "items":
            plan = each(plan, "entries", _entry)
        is_main = kind == "items" and plan.get("planId") == _MAIN
        if self.knows_ids and kind in _TYPES and not is_main:
            return [{**update, "plan": plan}]
        self._shown = str(plan.get("planId"))
        entries = plan.get("entries") if kind == "items" else [_as_entry(plan)]
        base = {**without(update, "plan"), "sessionUpdate": "plan"}
        return [{**base, "entries": entries if isinstance(entries, list) else []}]

    def removed(self, update: Json) -> list[Json]:
        if self.knows_ids and update.get("planId") != _MAIN:
            return [update]
        if update.get("planId") != self._shown:
            return []
        return [{**without(update, "planId"), "sessionUpdate": "plan", "entries": []}]


def _entry(entry: Json) -> Json:
    changed = dict(entry)
    status = entry.get("status")
    if status == "cancelled":
        changed["content"] = f"{entry.get('content')} (cancelled)"
    changed["status"] = known(
        status, _STATUSES, "completed" if status == "cancelled" else "pending"
    )
    changed["priority"] = known(entry.get("priority"), _PRIORITIES, "medium")
    return changed


def _as_entry(plan: Json) -> Json:
    """One entry for a plan of another type than a list."""
    text: Any = plan.get("content") or plan.get("uri") or f"[a plan of type {plan.get('type')}]"
    return {"content": str(text), "priority": "medium", "status": "in_progress"}
