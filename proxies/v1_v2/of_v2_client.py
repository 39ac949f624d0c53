"""Conversion for a client of version 2 with an agent of version 1.

In: the client's requests, and the agent's updates and requests, in the version of their sender.
Out: the same in the other version. A prompt is answered at once; the agent's answer, which ends
the turn, becomes a state update.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from conductor.bounded_dict import BoundedDict
from conductor.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND, REQUEST_CANCELLED
from conductor.proxy import Forward, RequestError
from proxies.shared.capabilities import has_member
from proxies.v1_v2.known_values import convert_blocks
from proxies.v1_v2.members import Json, without
from proxies.v1_v2.sessions import convert_setup_params, set_option_params
from proxies.v1_v2.side import Side
from proxies.v1_v2.to_v2 import SessionToV2
from proxies.v1_v2.tool_calls import permission_result_to_v1

__all__ = ["OfV2Client"]

_MAX_KEYS: Final = 1000
"""Remembered keys of a session; the oldest are forgotten."""


@attrs.define
class _V2ClientSession:
    converter: SessionToV2 = attrs.field(factory=SessionToV2, init=False)
    running: int = attrs.field(default=0, init=False)
    """Prompts that the agent has not answered."""
    submitted: BoundedDict[str, str] = attrs.field(
        factory=lambda: BoundedDict(_MAX_KEYS), init=False
    )
    """Message ids of prompts, by their `idempotencyKey`."""


@attrs.define
class OfV2Client(Side[_V2ClientSession]):
    """Converts between a client of version 2 and an agent of version 1."""

    def agent_can(self, name: str) -> bool:
        """Whether the agent announces this method of sessions, which in version 2 all have."""
        return self._has("sessionCapabilities", name)

    def _has(self, *path: str) -> bool:
        return has_member(self.result, ("agentCapabilities", *path))

    def new_session(self) -> _V2ClientSession:
        return _V2ClientSession()

    async def log_in(self, params: Json) -> Json:
        return await self._ask("authenticate", params)

    async def log_out(self, params: Json) -> Json:
        if not self._has("auth", "logout"):
            raise RequestError(METHOD_NOT_FOUND, "v1_v2: this agent of version 1 cannot log out")
        return await self._ask("logout", params)

    async def set_up(self, method: str, params: Json) -> Json:
        converted = convert_setup_params(params, 1)
        if method == "session/resume":
            result = await self._resume(converted, params.get("replayFrom"))
        else:
            result = await self._open(method, converted)
        id = str(result.get("sessionId", params.get("sessionId")))
        session = self.sessions[id]
        if method == "session/resume":  # these have to come before the answer
            if isinstance(params.get("replayFrom"), dict):
                await self._tell(id, {"sessionUpdate": "replay_complete"})
            state = "running" if session.running else "idle"
            await self._tell(id, {"sessionUpdate": "state_update", "state": state})
        return session.converter.setup_result(result)

    async def _resume(self, params: Json, replay: Any) -> Json:
        """Open an earlier session, with its history or without."""
        id = str(params.get("sessionId"))
        resumes = self.agent_can("resume")
        if isinstance(replay, dict):
            if replay.get("type") != "start":
                raise RequestError(
                    INVALID_PARAMS, "v1_v2: replayFrom: an agent of version 1 has `start`"
                )
            if self._has("loadSession"):
                self.sessions[id].converter.turn_ended()
                return await self._ask("session/load", params)
            if resumes:
                self.proxy.after_answer(self._no_history, id)
                return await self._ask("session/resume", params)
        elif resumes:
            return await self._ask("session/resume", params)
        elif self._has("loadSession"):
            async with self.proxy.muted(id):
                return await self._ask("session/load", params)
        raise RequestError(
            METHOD_NOT_FOUND, "v1_v2: this agent of version 1 cannot open earlier sessions"
        )

    async def session_options(self, params: Json) -> Json:
        result = await self._ask("session/options", params)
        return self.new_session().converter.setup_result(result)

    async def set_option(self, params: Json) -> Json:
        converter = self._session(params).converter
        option = converter.modes_option
        if option is not None and params.get("configId") == option["configId"]:
            mode = params.get("value")
            asked = {**without(params, "configId", "type", "value"), "modeId": mode}
            result = await self._ask("session/set_mode", asked)
            return {**result, "configOptions": converter.mode_set(mode)}
        result = await self._ask("session/set_config_option", set_option_params(params, 1))
        return {**result, "configOptions": converter.options_of(result.get("configOptions"))}

    async def prompt(self, params: Json) -> Json | None:
        """Answered at once; a state says how the turn ended. One with the key of an earlier prompt
        is answered as that was, and does not run."""
        id = str(params.get("sessionId"))
        session = self.sessions[id]
        key = params.get("idempotencyKey")
        if key is not None and not (isinstance(key, str) and 1 <= len(key) <= 255):
            raise RequestError(INVALID_PARAMS, "v1_v2: idempotencyKey: 1 to 255 characters")
        if isinstance(key, str) and key in session.submitted:
            return {"messageId": session.submitted[key]}
        message_id = session.converter.turn_started()
        if key is not None:
            session.submitted[key] = message_id
        answer = self.proxy.defer(lambda: None)
        answer({"messageId": message_id}, None)
        session.running += 1
        await self._tell(id, {"sessionUpdate": "state_update", "state": "running"})
        blocks = params.get("prompt")
        message = {"sessionUpdate": "user_message", "messageId": message_id, "content": blocks}
        await self._tell(id, message)
        try:
            converted = {**params, "prompt": convert_blocks(blocks, 1)}
            end = await self._ask("session/prompt", converted)
        except RequestError as exc:
            end = _turn_error(exc.code, exc.message, exc.data)
        finally:
            session.running -= 1
        if not session.running:
            session.converter.turn_ended()
            await self._tell(id, {"sessionUpdate": "state_update", "state": "idle", **end})
        return None

    async def update(self, params: Json, forward: Forward) -> None:
        update = params.get("update")
        if not isinstance(update, dict):
            await forward()
            return
        converter = self._session(params).converter
        for converted in converter.convert(update):
            await forward({**params, "update": converted})

    async def permission(self, params: Json, forward: Forward) -> Any:
        converter = self._session(params).converter
        return permission_result_to_v1(await forward(converter.permission(params)))

    # ----------------------------------------------------------------------------------------------

    async def _no_history(self, id: str) -> None:
        title = "The agent goes on with this session, but cannot show its history"
        await self._tell(id, {"sessionUpdate": "notice", "severity": "info", "title": title})


def _turn_error(code: int, message: str, data: Any) -> Json:
    """The members of the state of version 2 for a prompt that an agent of version 1 refused."""
    if code == REQUEST_CANCELLED:
        return {"stopReason": "cancelled"}
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    return {"stopReason": "error", "error": error}
