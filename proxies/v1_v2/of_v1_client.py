"""Conversion for a client of version 1 with an agent of version 2.

In: the client's requests, and the agent's updates and requests, in the version of their sender.
Out: the same in the other version. The agent answers a prompt when it has accepted it, and reports
the end of the turn by a state; the client waits for the end in the answer. Which state ends which
prompt, `Turns` tells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs
import trio

from conductor.acp.turns import Turns
from conductor.bounded_dict import BoundedDict
from conductor.error_codes import INTERNAL_ERROR, INVALID_PARAMS
from conductor.proxy import Forward, RequestError
from proxies.v1_v2.known_values import STOP_REASONS
from proxies.v1_v2.members import Json, without
from proxies.v1_v2.sessions import convert_setup_params, set_option_params
from proxies.v1_v2.side import Side
from proxies.v1_v2.to_v1 import SessionToV1, V1Features

__all__ = ["OfV1Client", "OpenPrompt", "OpenPrompts"]

_USER_KINDS: Final = ("user_message", "user_message_chunk")
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
        if id in self._echoes:
            return True
        for turn in self.waiting:
            if turn.message_id is None:
                self._set_message_id(turn, id)
                return True
        return False

    def _set_message_id(self, turn: OpenPrompt, id: str) -> None:
        """The agent has named the message that it made of a prompt."""
        turn.message_id = id
        self._echoes[id] = None


@attrs.define
class _V1ClientSession:
    shown: SessionToV1
    turns: OpenPrompts = attrs.field(factory=OpenPrompts, init=False)


@attrs.define
class OfV1Client(Side[_V1ClientSession]):
    """Converts between a client of version 1 and an agent of version 2."""

    features: V1Features = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.features = V1Features.announced(self.params)

    def new_session(self) -> _V1ClientSession:
        return _V1ClientSession(SessionToV1(self.features))

    async def log_in(self, params: Json) -> Json:
        return await self._ask("auth/login", params)

    async def log_out(self, params: Json) -> Json:
        return await self._ask("auth/logout", params)

    async def set_up(self, method: str, params: Json) -> Json:
        converted = convert_setup_params(params, 2)
        if method == "session/load":
            result = await self._load(converted)
        else:
            result = await self._open(method, converted)
        id = str(result.get("sessionId", params.get("sessionId")))
        commands = result.get("availableCommands")
        shown = self.sessions[id].shown
        if commands is not None:
            self.proxy.after_answer(self._announce, id, shown.commands(commands))
        return shown.setup_result(result)

    async def _load(self, params: Json) -> Json:
        """Open a session with its history, for a client that shows nothing of it yet."""
        session = self._session(params)
        session.shown = self._nothing_shown(session.shown)
        session.turns.replay_begins()
        try:
            replay = {**params, "replayFrom": {"type": "start"}}
            return await self._open("session/resume", replay)
        finally:
            session.turns.replay_ends()

    def _nothing_shown(self, before: SessionToV1) -> SessionToV1:
        shown = SessionToV1(self.features)
        shown.mode, shown.skills = before.mode, before.skills
        return shown

    async def set_mode(self, params: Json) -> Json:
        id = str(params.get("sessionId"))
        shown = self.sessions[id].shown
        if shown.mode is None:
            raise RequestError(INVALID_PARAMS, "v1_v2: the agent has no option that is a mode")
        option = {"configId": shown.mode["configId"], "type": "id", "value": params.get("modeId")}
        asked = {**without(params, "modeId"), **option}
        result = await self._ask("session/set_config_option", asked)
        options = shown.options(result.get("configOptions"))
        await self._tell(id, {"sessionUpdate": "config_option_update", "configOptions": options})
        return without(result, "configOptions")

    async def session_options(self, params: Json) -> Json:
        result = await self._ask("session/options", params)
        return self.new_session().shown.setup_result(result)

    async def set_option(self, params: Json) -> Json:
        result = await self._ask("session/set_config_option", set_option_params(params, 2))
        id = str(params.get("sessionId"))
        shown = self.sessions[id].shown
        before = shown.mode
        options = shown.options(result.get("configOptions"))
        if shown.mode is not None and before is not None and shown.mode != before:
            mode = shown.mode.get("currentValue")
            await self._tell(id, {"sessionUpdate": "current_mode_update", "currentModeId": mode})
        return {**result, "configOptions": options}

    async def prompt(self, params: Json) -> None:
        """Answered by the state that ends the turn (`update`)."""
        id = str(params.get("sessionId"))
        session = self.sessions[id]
        turns = session.turns

        def cancelled() -> None:
            turns.cancelled()
            self.proxy.agent.send("session/cancel", {"sessionId": id})

        turn = OpenPrompt(self.proxy.defer(cancelled))
        turns.begin(turn)
        blocks = session.shown.prompt(params.get("prompt"))
        try:
            accepted = await self._ask("session/prompt", {**params, "prompt": blocks})
        except RequestError:
            turns.refused(turn)
            raise
        turns.accepted(turn, accepted)

    def cancel(self, params: Json) -> None:
        self._session(params).turns.cancelled()

    async def update(self, params: Json, forward: Forward) -> None:
        update = params.get("update")
        if not isinstance(update, dict):
            await forward()
            return
        session = self._session(params)
        kind = update.get("sessionUpdate")
        if kind in _USER_KINDS and session.turns.is_echo(update):
            return
        for converted in session.shown.convert(update):
            await forward({**params, "update": converted})
        if kind == "state_update":
            session.turns.state(update)

    async def permission(self, params: Json, forward: Forward) -> Any:
        shown = self._session(params).shown
        return await forward(shown.tool_calls.permission(params))

    # ----------------------------------------------------------------------------------------------

    async def _announce(self, id: str, commands: list[Json]) -> None:
        update = {"sessionUpdate": "available_commands_update", "availableCommands": commands}
        await self._tell(id, update)


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
    stop_reason = reason if reason in STOP_REASONS else "end_turn"
    return {"stopReason": stop_reason, **accepted, **told, **meta}, None
