"""Tells which `state_update` begins or ends the work of a session. Protocol version 2. Pure.

An agent reports `running` when work starts and `idle` when it ends; it may report a state again, to
tell what runs in the background (schema: `StateUpdate`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

__all__ = ["ForegroundWork"]


class ForegroundWork:
    """Foreground work of one session, by the states that its agent reports."""

    __slots__ = ("_reports_running", "is_running")

    def __init__(self) -> None:
        self.is_running: bool = False
        """By the last state."""
        self._reports_running: bool = False

    def take(self, update: Mapping[str, Any]) -> Literal["started", "ended"] | None:
        """Take an update of the session, or the `state` in a subagent's; return what it changes.

        An `idle` without work before it ends the work of an agent that never reports `running`, or
        that tells of no background work: a client that waits for its end would wait forever.
        """
        if update.get("sessionUpdate", "state_update") != "state_update":
            return None
        was_running = self.is_running
        match update.get("state"):
            case "running" | "requires_action":
                self.is_running = self._reports_running = True
                return None if was_running else "started"
            case "idle":
                self.is_running = False
                if was_running or not self._reports_running:
                    return "ended"
                return None if isinstance(update.get("background"), list) else "ended"
        return None
