"""What an agent says in a turn, collected; and what of it `muted` hides."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import trio

from conductor.proxy.conversion import decode_params

__all__ = ["PromptTurn", "TurnCollector", "is_turn_output"]

_SESSION_STATE_UPDATES: Final = frozenset(
    {
        "available_commands_update",
        "config_option_update",
        "current_mode_update",
        "session_info_update",
        "usage_update",
    }
)
"""Updates that tell what a session is like, whatever turn they come in: a client that misses them
is wrong from then on."""


class PromptTurn(msgspec.Struct, frozen=True):
    """A prompt turn that has ended."""

    stop_reason: str
    text: str
    """Everything that the agent said, its thoughts excluded."""
    result: dict[str, Any]
    """The whole answer to `session/prompt`."""

    def __repr__(self) -> str:
        return f"PromptTurn(stop_reason={self.stop_reason!r}, text={self.text!r})"


class TurnCollector:
    """Collects what the agent says in one session. `idle`: the turn is over, by an update (2)."""

    __slots__ = ("_pieces", "idle", "session_id", "stop_reason")

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.stop_reason = "end_turn"
        self.idle = trio.Event()
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def take(self, params: bytes | None) -> bool:
        """A tap: look at an update, and let it go on."""
        update = _update_of(params, self.session_id)
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                content = update.get("content")
                if isinstance(content, dict) and isinstance(content.get("text"), str):
                    self._pieces.append(content["text"])
            case "state_update" if update.get("state") == "idle":
                self.stop_reason = update.get("stopReason") or self.stop_reason
                self.idle.set()
        return False


def is_turn_output(params: bytes | None, session_id: str) -> bool:
    """Whether an update belongs to what happens in a turn of this session."""
    kind = _update_of(params, session_id).get("sessionUpdate")
    return kind is not None and kind not in _SESSION_STATE_UPDATES


def _update_of(params: bytes | None, session_id: str) -> dict[str, Any]:
    try:
        message = decode_params(params, dict)
    except ValueError:
        return {}
    if not isinstance(message, dict) or message.get("sessionId") != session_id:
        return {}
    update = message.get("update")
    return update if isinstance(update, dict) else {}
