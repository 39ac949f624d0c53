"""Conversion for a client of version 1 with an agent of version 2.

In: the client's requests, and the agent's updates and requests, in the version of their sender.
Out: the same in the other version. The answer to a prompt waits until the agent reports
the end of the turn (`open_prompts`).
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from conductor.error_codes import INVALID_PARAMS
from conductor.proxy import Forward, RequestError
from proxies.v1_v2.kept_content import KeptContent
from proxies.v1_v2.members import Json, without
from proxies.v1_v2.open_prompts import OpenPrompt, OpenPrompts
from proxies.v1_v2.sessions import convert_setup_params, set_option_params
from proxies.v1_v2.side import Side
from proxies.v1_v2.to_v1 import SessionToV1, V1Features

__all__ = ["OfV1Client"]

_USER_KINDS: Final = ("user_message", "user_message_chunk")


@attrs.define
class _V1ClientSession:
    shown: SessionToV1
    turns: OpenPrompts = attrs.field(factory=OpenPrompts, init=False)


@attrs.define
class OfV1Client(Side[_V1ClientSession]):
    """Converts between a client of version 1 and an agent of version 2."""

    features: V1Features = attrs.field(init=False)
    kept: KeptContent = attrs.field(factory=KeptContent, init=False)

    def __attrs_post_init__(self) -> None:
        self.features = V1Features.announced(self.params)

    def new_session(self) -> _V1ClientSession:
        return _V1ClientSession(SessionToV1(self.features, self.kept))

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
        if method in ("session/new", "session/fork"):
            # a restarted agent may give an id again that it has given before
            session = self._session(id)
            session.shown = self._nothing_shown(session.shown)
        commands = result.get("availableCommands")
        shown = self._session(id).shown
        if commands is not None:
            self.proxy.after_answer(self._announce, id, shown.commands(commands))
        return shown.setup_result(result)

    async def _load(self, params: Json) -> Json:
        """Open a session with its history, for a client that shows nothing of it yet."""
        session = self._session(str(params.get("sessionId")))
        before = session.shown
        session.shown = self._nothing_shown(before)
        session.turns.replay_begins()
        try:
            replay = {**params, "replayFrom": {"type": "start"}}
            result = await self._open("session/resume", replay)
        except BaseException:
            session.shown = before
            raise
        finally:
            session.turns.replay_ends()
        before.tool_calls.forget()
        return result

    def _nothing_shown(self, before: SessionToV1) -> SessionToV1:
        shown = SessionToV1(self.features, self.kept)
        shown.mode, shown.skills = before.mode, before.skills
        return shown

    async def set_mode(self, params: Json) -> Json:
        id = str(params.get("sessionId"))
        shown = self._session(id).shown
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
        shown = self._session(id).shown
        before = shown.mode
        options = shown.options(result.get("configOptions"))
        if shown.mode is not None and before is not None and shown.mode != before:
            mode = shown.mode.get("currentValue")
            await self._tell(id, {"sessionUpdate": "current_mode_update", "currentModeId": mode})
        return {**result, "configOptions": options}

    async def prompt(self, params: Json) -> None:
        """Answered by the state that ends the turn (`update`)."""
        id = str(params.get("sessionId"))
        session = self._session(id)
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
        self._session(str(params.get("sessionId"))).turns.cancelled()

    async def update(self, params: Json, forward: Forward) -> None:
        update = params.get("update")
        if not isinstance(update, dict):
            await forward()
            return
        session = self._session(str(params.get("sessionId")))
        kind = update.get("sessionUpdate")
        if kind in _USER_KINDS and session.turns.is_echo(update):
            return
        for converted in session.shown.convert(update):
            await forward({**params, "update": converted})
        if kind == "state_update":
            session.turns.state(update)

    async def permission(self, params: Json, forward: Forward) -> Any:
        shown = self._session(str(params.get("sessionId"))).shown
        return await forward(shown.tool_calls.permission(params))

    # ----------------------------------------------------------------------------------------------

    async def _announce(self, id: str, commands: list[Json]) -> None:
        update = {"sessionUpdate": "available_commands_update", "availableCommands": commands}
        await self._tell(id, update)
