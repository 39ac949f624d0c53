"""What a scripted agent says of a subagent, in the form of both protocol versions."""

from __future__ import annotations

from typing import Any

__all__ = ["idle", "running", "subagent"]


def subagent(id: str = "child", **members: Any) -> dict[str, Any]:
    return {"sessionUpdate": "subagent_update", "sessionId": id, **members}


def running(id: str = "child", **members: Any) -> dict[str, Any]:
    return subagent(id, state={"state": "running"}, **members)


def idle(id: str = "child", **state: Any) -> dict[str, Any]:
    return subagent(id, state={"state": "idle", **state})
