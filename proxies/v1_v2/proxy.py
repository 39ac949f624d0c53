"""`v1_v2`: a client of protocol version 1 with an agent of version 2, or the other way round.

Components before it in the chain see the version of the client, components behind it that of the
agent. docs/adapters-v1-v2.md says what is converted, and what one version cannot show.

Options:
    agent_version  the version that the agent speaks, 1 or 2. By default the agent gets the client's
                   `initialize` first, and one of the other version if it refuses that, or, in a
                   new process, if it answers with the other version. Needed if a proxy stands
                   behind this one
"""

from __future__ import annotations

from typing import Any, Final, Literal

import attrs

from conductor.error_codes import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION,
)
from conductor.proxy import (
    Forward,
    Proxy,
    RequestError,
    SessionSetup,
    on,
    on_session_setup,
    per_session,
)
from proxies.v1_v2.handshake import initialize_params, initialize_result
from proxies.v1_v2.of_v1_client import OfV1Client
from proxies.v1_v2.of_v2_client import OfV2Client
from proxies.v1_v2.side import answered_object

__all__ = ["V1V2"]

_REFUSALS: Final = (INVALID_REQUEST, INVALID_PARAMS, PROTOCOL_VERSION)
"""Codes with which an agent refuses an `initialize` of a version that it does not know; the last is
the one of version 2 for that."""


@attrs.define
class V1V2(Proxy):
    """Let client and agent speak different versions of the protocol."""

    required = True

    agent_version: Literal[1, 2] | None = None
    _sides: OfV1Client | OfV2Client | None = attrs.field(default=None, init=False)
    """`None` while both speak the same version."""

    @per_session
    def sessions(self) -> Any:
        return None if self._sides is None else self._sides.new_session()

    @on("initialize")
    async def initialize(self, params: dict[str, Any], forward: Forward) -> Any:
        version = params.get("protocolVersion")
        client = 2 if isinstance(version, int) and version >= 2 else 1
        if self.agent_version is not None:
            if self.agent_version == client:
                return await forward()
            try:
                return await self._initialize_other(params, 3 - client, forward)
            except RequestError as exc:
                if exc.code not in _REFUSALS or exc.message.startswith("v1_v2:"):
                    raise
                text = f"v1_v2: the agent refuses version {3 - client} of the protocol, which was "
                text += f"tried for a client of version {client}: {exc.message}"
                raise RequestError(exc.code, text, exc.data) from None
        try:
            result = await forward()
        except RequestError as exc:
            if exc.code not in _REFUSALS:
                raise
            return await self._initialize_again(params, 3 - client, forward)
        if answered_object("initialize", result).get("protocolVersion", 1) != 3 - client:
            return result
        return await self._initialize_again(params, 3 - client, forward)

    async def _initialize_again(
        self, params: dict[str, Any], agent: int, forward: Forward
    ) -> dict[str, Any]:
        try:
            return await self._initialize_other(params, agent, forward)
        except RequestError as exc:
            text = f"v1_v2: no second `initialize` here, write `agent_version: {agent}`: {exc}"
            raise RequestError(exc.code, text, exc.data) from None

    async def _initialize_other(
        self, params: dict[str, Any], agent: int, forward: Forward
    ) -> dict[str, Any]:
        asked = initialize_params(params, agent)
        result = answered_object("initialize", await forward(asked))
        answered = result.get("protocolVersion", 1)
        if answered != agent:
            text = f"v1_v2: the agent speaks version {answered!r}, not {agent}"
            raise RequestError(INVALID_PARAMS, text)
        kind = OfV1Client if agent == 2 else OfV2Client
        self._sides = kind(self, self.sessions, params, result)
        return initialize_result(result, 3 - agent)

    @on("authenticate", "auth/login")
    async def log_in(self, params: dict[str, Any], forward: Forward) -> Any:
        if self._sides is None:
            return await forward()
        return await self._sides.log_in(params)

    @on("logout", "auth/logout")
    async def log_out(self, params: dict[str, Any], forward: Forward) -> Any:
        if self._sides is None:
            return await forward()
        return await self._sides.log_out(params)

    @on_session_setup
    async def set_up(self, setup: SessionSetup, forward: Forward) -> Any:
        if self._sides is None:
            return await forward()
        return await self._sides.set_up(f"session/{setup.opened_by}", setup.params)

    @on("session/list")
    async def list_sessions(self, params: dict[str, Any], forward: Forward) -> Any:
        if isinstance(self._sides, OfV2Client) and not self._sides.agent_can("list"):
            return {"sessions": []}
        return await forward()

    @on("session/options")
    async def session_options(self, params: dict[str, Any], forward: Forward) -> Any:
        if self._sides is None:
            return await forward()
        return await self._sides.session_options(params)

    @on("session/close")
    async def close_session(self, params: dict[str, Any], forward: Forward) -> Any:
        if isinstance(self._sides, OfV2Client) and not self._sides.agent_can("close"):
            await self.agent.notify("session/cancel", {"sessionId": params.get("sessionId")})
            return {}
        return await forward()

    @on("session/set_mode")
    async def set_mode(self, params: dict[str, Any], forward: Forward) -> Any:
        if isinstance(self._sides, OfV1Client):
            return await self._sides.set_mode(params)
        return await forward()

    @on("session/set_config_option")
    async def set_option(self, params: dict[str, Any], forward: Forward) -> Any:
        if self._sides is None:
            return await forward()
        return await self._sides.set_option(params)

    @on("session/prompt")
    async def prompt(self, params: dict[str, Any], forward: Forward) -> Any:
        if self._sides is None:
            return await forward()
        return await self._sides.prompt(params)

    @on("session/cancel")
    async def cancel(self, params: dict[str, Any], forward: Forward) -> None:
        if isinstance(self._sides, OfV1Client):
            self._sides.cancel(params)
        await forward()

    @on("session/update")
    async def update(self, params: dict[str, Any], forward: Forward) -> None:
        if self._sides is None:
            await forward()
        else:
            await self._sides.update(params, forward)

    @on("session/request_permission")
    async def permission(self, params: dict[str, Any], forward: Forward) -> Any:
        if self._sides is None:
            return await forward()
        return await self._sides.permission(params, forward)

    @on("elicitation/create")
    async def elicitation(self, params: dict[str, Any], forward: Forward) -> Any:
        schema = params.get("requestedSchema")
        if isinstance(self._sides, OfV2Client) and isinstance(schema, dict):
            schema = {"type": "object", "properties": {}, **schema}
            return await forward({**params, "requestedSchema": schema})
        return await forward()

    @on("tool_call/cancel", "terminal/cancel")
    async def cancel_one(self, params: dict[str, Any], forward: Forward) -> Any:
        if isinstance(self._sides, OfV2Client):
            text = "v1_v2: an agent of version 1 cannot cancel a single tool call or terminal"
            raise RequestError(METHOD_NOT_FOUND, text)
        return await forward()

    @on("fs/read_text_file", "fs/write_text_file", "terminal/create", "terminal/output")
    @on("terminal/wait_for_exit", "terminal/kill", "terminal/release")
    async def use_client(self, params: dict[str, Any], forward: Forward) -> Any:
        if isinstance(self._sides, OfV2Client):
            text = "v1_v2: a client of version 2 has no files and terminals for the agent"
            raise RequestError(METHOD_NOT_FOUND, text)
        return await forward()
