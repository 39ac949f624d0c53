"""`plan_approval`: shows a plan before the agent asks for its approval.

Agents ask for the approval of a plan with a permission request of the kind `switch_mode`. The plan
is in its content, or only in its raw input (`plan`: Claude, Qwen); some clients show the title
alone. This proxy shows the plan as a message of the agent first. The request itself stays as it is:
its options have the kinds that every client knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from conductor.proxy import (
    Forward,
    PermissionQuestion,
    Proxy,
    Session,
    on_permission,
    per_session,
)

__all__ = ["PlanApproval"]


@attrs.define
class PlanApproval(Proxy):
    """Show a plan before the agent asks for its approval."""

    on_error = "pass"

    shown = per_session(dict[str, str])
    """The plan that was shown last, of the tool call with this id."""

    @on_permission
    async def show(self, session: Session, asked: PermissionQuestion, forward: Forward) -> Any:
        call = asked.tool_call
        if call is not None and call.kind == "switch_mode":
            plan, shown = _plan(call.members), self.shown[session.id]
            if plan and shown.get(call.id) != plan:
                shown.clear()
                shown[call.id] = plan
                await session.say(f"\n\n{plan}\n\n")
        return await forward()


def _plan(call: Mapping[str, Any]) -> str:
    """The plan of a tool call; empty if there is none."""
    given = call.get("rawInput")
    if isinstance(given, dict) and isinstance(given.get("plan"), str):
        return str(given["plan"]).strip()
    content = call.get("content")
    blocks = [each.get("content") for each in content or [] if isinstance(each, dict)]
    texts = [each.get("text") for each in blocks if isinstance(each, dict)]
    return "\n\n".join(each for each in texts if isinstance(each, str)).strip()
