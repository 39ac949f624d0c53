"""Collects the output of a prompt turn, and tells which updates `Proxy.muted` hides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import trio

from conductor.acp.turns import Ended, SessionTurns
from conductor.proxy.conversion import decode_params

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
    """Collects the agent's text in one session, from the sending of a prompt to the end of its
    turn, which sets `ended`. `turns` are those of the session, over its prompts."""

    __slots__ = ("_pieces", "_turns", "ended", "session_id", "stop_reason")

    def __init__(self, session_id: str, turns: SessionTurns[Any]) -> None:
        self.session_id: str = session_id
        self.stop_reason: str = "end_turn"
        self.ended: trio.Event = trio.Event()
        self._turns: SessionTurns[Any] = turns
        self._pieces: list[str] = []
        turns.prompt_sent(self, trio.current_time())

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def answered(self, result: Mapping[str, Any] | None) -> None:
        """Record the answer to the prompt; `None` for an error, and if nobody waits any more."""
        reason = None if result is None else result.get("stopReason")
        self._end(
            self._turns.prompt_answered(
                self, trio.current_time(), accepted=result is not None, stop_reason=reason
            )
        )

    def take(self, params: bytes | None) -> bool:
        """Record an update. A `NotificationTap` that never drops."""
        update = _update_of(params, self.session_id)
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                content = update.get("content")
                if isinstance(content, dict) and isinstance(content.get("text"), str):
                    self._pieces.append(content["text"])
            case "state_update":
                self._end(self._turns.take(update, trio.current_time()))
        return False

    def _end(self, ended: Ended[Any] | None) -> None:
        if ended is not None and self in ended.prompts:
            self.stop_reason = ended.stop_reason or self.stop_reason
            self.ended.set()


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
