"""Prompts of a client of version 1, open until an agent of version 2 ends their turn. Pure.

The agent answers a prompt when it has accepted it, and reports the end of the turn by a state; the
client waits for the end in the answer. An agent may report states before it answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from conductor.error_codes import INTERNAL_ERROR
from conductor.proxy import BoundedDict, ForegroundWork
from proxies.v1_v2.members import Json, key_of, without

__all__ = ["OpenPrompt", "OpenPrompts"]

_STOP_REASONS: Final = frozenset(
    {"end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"}
)
_STATE_MEMBERS: Final = ("sessionUpdate", "state", "stopReason", "background")
"""Members of an `idle` state that the answer to a prompt does not have."""
_MAX_ECHOES: Final = 100
"""Ids of prompts of a session that are remembered; the oldest are forgotten."""


@attrs.define(eq=False)
class OpenPrompt:
    """A prompt of the client. `answer` takes its result, or an error object."""

    answer: Callable[[Json | None, Json | None], None]
    is_accepted: bool = False
    is_running: bool = False
    """Whether the agent has reported since the prompt that it has begun to work."""
    message_id: str | None = None
    """The id of the prompt as a message of the agent, once it is known."""
    accepted: Json = attrs.field(factory=dict)
    """The agent's answer to the prompt, without that id."""


@attrs.define
class OpenPrompts:
    """The prompts of one session that are not answered."""

    waiting: list[OpenPrompt] = attrs.field(factory=list, init=False)
    _work: ForegroundWork = attrs.field(factory=ForegroundWork, init=False)
    _echoes: BoundedDict[str, None] = attrs.field(
        factory=lambda: BoundedDict(_MAX_ECHOES), init=False
    )

    def begin(self, turn: OpenPrompt) -> None:
        self.waiting.append(turn)

    def accepted(self, turn: OpenPrompt, answer: Json) -> None:
        """The agent has answered the prompt."""
        turn.is_accepted, turn.accepted = True, without(answer, "messageId", "stopReason")
        message_id = answer.get("messageId")
        if isinstance(message_id, str):
            self._set_message_id(turn, message_id)

    def refused(self, turn: OpenPrompt) -> None:
        """The agent has answered the prompt with an error, or cannot answer any more."""
        if turn in self.waiting:
            self.waiting.remove(turn)
        if not self.waiting:
            self._work.is_running = False  # a process that has ended does not report it

    def end(self, turn: OpenPrompt, result: Json | None, error: Json | None = None) -> None:
        """Answer a prompt, if it is not answered yet."""
        if turn in self.waiting:
            self.waiting.remove(turn)
            turn.answer(result, error)

    def state(self, update: Json) -> None:
        """Take a `state_update`."""
        match self._work.take(update):
            case "started":
                for turn in self.waiting:
                    turn.is_running = True
            case "ended":
                for turn in [each for each in self.waiting if each.is_accepted or each.is_running]:
                    self.end(turn, *_outcome(update, turn.accepted))

    def is_echo(self, update: Json) -> bool:
        """Whether an update of a user's message is a prompt of the client, which shows it already:
        in version 1 agents do not repeat it."""
        id = update.get("messageId")
        if not isinstance(id, str):
            return False
        if key_of(id) in self._echoes:
            return True
        for turn in self.waiting:
            if turn.message_id is None:
                self._set_message_id(turn, id)
                return True
        return False

    def _set_message_id(self, turn: OpenPrompt, id: str) -> None:
        """The agent has named the message that it made of a prompt."""
        turn.message_id = id
        self._echoes[key_of(id)] = None


def _outcome(update: Json, accepted: Json) -> tuple[Json | None, Json | None]:
    """The answer to a prompt by the state that ended its turn: a result, or an error."""
    reason = update.get("stopReason")
    if reason == "error":
        error = update.get("error")
        unknown = {
            "code": INTERNAL_ERROR,
            "message": "v1_v2: the agent ended the turn with an error",
        }
        return None, error if isinstance(error, dict) else unknown
    told = without(update, *_STATE_MEMBERS)
    metas = [each["_meta"] for each in (accepted, told) if isinstance(each.get("_meta"), dict)]
    meta = {"_meta": {k: v for each in metas for k, v in each.items()}} if metas else {}
    stop_reason = reason if reason in _STOP_REASONS else "end_turn"
    return {"stopReason": stop_reason, **accepted, **told, **meta}, None
