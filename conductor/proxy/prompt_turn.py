"""Collects the output of a prompt turn, and tells which updates `Proxy.muted` hides."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import trio

from conductor.proxy.conversion import decode_params
from conductor.proxy.foreground_work import ForegroundWork

__all__ = ["SESSION_STATE_UPDATES", "PromptTurn", "TurnCollector", "is_turn_output"]

SESSION_STATE_UPDATES: Final = frozenset(
    {
        "available_commands_update",
        "config_option_update",
        "current_mode_update",
        "session_info_update",
        "usage_update",
    }
)
"""Kinds of updates of session state, which are not output of a turn: they may arrive between
the chunks of one message, and a client that misses one shows a wrong state."""


class PromptTurn(msgspec.Struct, frozen=True):
    """The outcome of a prompt turn."""

    stop_reason: str
    text: str
    """Text of the agent's message chunks, without its thoughts."""
    result: dict[str, Any]
    """The result of `session/prompt`."""

    def __repr__(self) -> str:
        return f"PromptTurn(stop_reason={self.stop_reason!r}, text={self.text!r})"


class TurnCollector:
    """Collects the agent's text in one session. `idle` is set by the update that ends a turn in
    protocol version 2: not by one that was on its way when the turn began, such as the first state
    of a new session. `work` is that of the session, as far as it is known."""

    __slots__ = (
        "_is_running",
        "_pieces",
        "_work",
        "idle",
        "is_accepted",
        "session_id",
        "stop_reason",
    )

    def __init__(self, session_id: str, work: ForegroundWork) -> None:
        self.session_id: str = session_id
        self._work: ForegroundWork = work
        self.stop_reason: str = "end_turn"
        self.idle: trio.Event = trio.Event()
        self.is_accepted: bool = False
        """Whether the prompt is answered."""
        self._is_running: bool = False
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def take(self, params: bytes | None) -> bool:
        """Record an update. A `NotificationTap` that never drops."""
        update = _update_of(params, self.session_id)
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                content = update.get("content")
                if isinstance(content, dict) and isinstance(content.get("text"), str):
                    self._pieces.append(content["text"])
            case "state_update":
                change = self._work.take(update)
                if change == "started":
                    self._is_running = True
                elif change == "ended" and (self.is_accepted or self._is_running):
                    self.stop_reason = update.get("stopReason") or self.stop_reason
                    self.idle.set()
        return False


def is_turn_output(params: bytes | None, session_id: str) -> bool:
    """Whether an update is output of a turn of this session, not a change of session state."""
    kind = _update_of(params, session_id).get("sessionUpdate")
    return kind is not None and kind not in SESSION_STATE_UPDATES


def _update_of(params: bytes | None, session_id: str) -> dict[str, Any]:
    try:
        message = decode_params(params, dict)
    except ValueError:
        return {}
    if not isinstance(message, dict) or message.get("sessionId") != session_id:
        return {}
    update = message.get("update")
    return update if isinstance(update, dict) else {}
