"""Prompts of a client of version 1, open until an agent of version 2 ends their turn.

The agent answers a prompt when it has accepted it, and reports the end of the turn by a state; the
client waits for the end in the answer. Which state ends which prompt, `Turns` tells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs
import trio

from conductor.acp.turns import Turns
from conductor.bounded_dict import BoundedDict
from conductor.error_codes import INTERNAL_ERROR
from proxies.v1_v2.members import Json, key_of, without

__all__ = ["OpenPrompt", "OpenPrompts"]

_STOP_REASONS: Final = frozenset(
    {"end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"}
)
_HANDLED: Final = "acp-conductor/handled"
"""Member of `_meta` of the answers to slash commands of proxies (docs/proxies.md)."""
_STATE_MEMBERS: Final = ("sessionUpdate", "state", "stopReason", "background")
"""Members of an `idle` state that the answer to a prompt does not have."""
_MAX_ECHOES: Final = 100
"""Ids of prompts of a session that are remembered; the oldest are forgotten."""


@attrs.define(eq=False)
class OpenPrompt:
    """A prompt of the client. `answer` takes its result, or an error object."""

    answer: Callable[[Json | None, Json | None], None]
    message_id: str | None = None
    """The id of the prompt as a message of the agent, once it is known."""
    accepted: Json = attrs.field(factory=dict)
    """The agent's answer to the prompt, without that id."""


@attrs.define
class OpenPrompts:
    """The prompts of one session that are not answered."""

    turns: Any = attrs.field(factory=lambda: Turns[OpenPrompt](2).of(""), init=False)
    """The turns of the agent in the session, by prompt."""
    _echoes: BoundedDict[str, None] = attrs.field(
        factory=lambda: BoundedDict(_MAX_ECHOES), init=False
    )

    @property
    def waiting(self) -> list[OpenPrompt]:
        return [each.key for each in self.turns.prompts]

    def begin(self, prompt: OpenPrompt) -> None:
        self.turns.prompt_sent(prompt, trio.current_time())

    def accepted(self, prompt: OpenPrompt, answer: Json) -> None:
        """The agent has answered the prompt: at once with the end of its turn, as in version 1 and
        for a slash command of a proxy, or so that the end follows."""
        prompt.accepted = without(answer, "messageId", "stopReason")
        message_id = answer.get("messageId")
        if isinstance(message_id, str):
            self._set_message_id(prompt, message_id)
        meta, reason = answer.get("_meta"), answer.get("stopReason")
        if isinstance(meta, dict) and meta.get(_HANDLED) is True:
            reason = "end_turn"
        elif not isinstance(reason, str):
            reason = None
        now = trio.current_time()
        self._end(
            self.turns.prompt_answered(
                prompt, now, accepted=True, stop_reason=reason, report={"stopReason": reason}
            )
        )

    def refused(self, prompt: OpenPrompt) -> None:
        """The agent has answered the prompt with an error, or cannot answer any more."""
        self.turns.prompt_answered(prompt, trio.current_time(), accepted=False)

    def cancelled(self) -> None:
        self.turns.cancel(trio.current_time())

    def state(self, update: Json) -> None:
        """Take a `state_update`."""
        self._end(self.turns.take(update, trio.current_time()))

    def replay_begins(self) -> None:
        """The agent is asked to load the session: states are history until it answers."""
        self.turns.resume_sent()

    def replay_ends(self) -> None:
        self._end(self.turns.resume_answered())

    def _end(self, ended: Any) -> None:
        if ended is not None:
            for prompt in ended.prompts:
                prompt.answer(*_outcome(ended.report or {}, prompt.accepted))

    def is_echo(self, update: Json) -> bool:
        """Whether an update of a user's message is a prompt of the client, which shows it already:
        in version 1 agents do not repeat it. None is in a history."""
        id = update.get("messageId")
        if self.turns.resumes or not isinstance(id, str):
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
