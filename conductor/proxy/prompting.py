"""What an agent says in a turn, collected; and what of it `muted` hides."""

from __future__ import annotations

from typing import Any, Final

import attrs
import trio

from conductor.proxy.codec import decode_params

__all__ = ["PromptTurn", "Said", "hidden"]

_STATE: Final = frozenset(
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


@attrs.frozen
class PromptTurn:
    """A prompt turn that has ended."""

    stop_reason: str
    text: str
    """Everything that the agent said, its thoughts excluded."""
    result: dict[str, Any] = attrs.field(repr=False)
    """The whole answer to `session/prompt`."""


@attrs.define(eq=False, repr=False)
class Said:
    """Collects what the agent says in one session."""

    session_id: str
    stop_reason: str = "end_turn"
    idle: trio.Event = attrs.field(factory=trio.Event, init=False)
    """The turn is over, by an update (version 2)."""
    _pieces: list[str] = attrs.field(factory=list, init=False)

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


def hidden(params: bytes | None, session_id: str) -> bool:
    """Whether an update belongs to what happens in a turn of this session."""
    kind = _update_of(params, session_id).get("sessionUpdate")
    return kind is not None and kind not in _STATE


def _update_of(params: bytes | None, session_id: str) -> dict[str, Any]:
    try:
        message = decode_params(params, dict)
    except ValueError:
        return {}
    if not isinstance(message, dict) or message.get("sessionId") != session_id:
        return {}
    update = message.get("update")
    return update if isinstance(update, dict) else {}
