"""ACP client: `initialize`, sessions and prompts, on `conductor.peer`."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from conductor import __version__
from conductor.errors import ConnectionClosed, RemoteProtocolError, RequestError
from conductor.peer import JsonRpcPeer

__all__ = ["ChainClient", "Client"]


@attrs.define(eq=False)
class Client(JsonRpcPeer):
    """An ACP client; requests and notifications of the agent go to `handlers`.

    Requests raise `RequestError` for an error response, `ConnectionClosed` at the end of the
    stream, and `RemoteProtocolError` for a result that is not an object or lacks the session id.
    """

    protocol_version: int = attrs.field(default=1, init=False)
    """The version in the agent's response to `initialize`; if it has none, the one requested."""

    async def initialize(
        self,
        *,
        version: int = 1,
        capabilities: Mapping[str, Any] | None = None,
        name: str = "acp-conductor",
    ) -> dict[str, Any]:
        """Send `initialize` and return the result."""
        info = {"name": name, "version": __version__}
        params: dict[str, Any]
        if version == 1:
            params = {"clientCapabilities": dict(capabilities or {}), "clientInfo": info}
        else:
            params = {"capabilities": dict(capabilities or {}), "info": info}
        return await self.initialize_with({"protocolVersion": version, **params})

    async def initialize_with(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send `initialize` with these params and return the result."""
        result = _object("initialize", await self.request("initialize", params))
        self.protocol_version = result.get("protocolVersion", params["protocolVersion"])
        return result

    async def new_session(
        self,
        cwd: str | None = None,
        mcp_servers: Sequence[Mapping[str, Any]] = (),
        *,
        answered: Callable[[Any], None] | None = None,
    ) -> str:
        """Open a session and return its id.

        `answered` is called with the result on arrival, before any later message is dispatched.
        """
        params = {"cwd": cwd or os.getcwd(), "mcpServers": list(mcp_servers)}
        result = await self.request("session/new", params, answered=_objects_only(answered))
        session_id = _object("session/new", result).get("sessionId")
        if not isinstance(session_id, str):
            raise _malformed("session/new", "has no `sessionId`")
        return session_id

    async def prompt(
        self,
        session: str,
        prompt: str | Sequence[Any],
        *,
        answered: Callable[[Any], None] | None = None,
    ) -> dict[str, Any]:
        """Send a prompt, given as text or content blocks, and return the result.

        The result arrives at the end of the turn in version 1, at its start in version 2.
        `answered`: as of `new_session`.
        """
        params = _prompt_params(session, prompt)
        result = await self.request("session/prompt", params, answered=_objects_only(answered))
        return _object("session/prompt", result)

    def cancel(self, session: str) -> None:
        """Send `session/cancel`; the agent still answers the prompt."""
        self.notify("session/cancel", {"sessionId": session})


@attrs.define(eq=False)
class ChainClient(Client):
    """A client that sends a prompt of version 2 once more if the agent's exit has cut it off, with
    the same `idempotencyKey`, so that the agent does not run it twice."""

    agent: str = "agent"
    """The agent's name in the chain."""

    async def prompt(
        self,
        session: str,
        prompt: str | Sequence[Any],
        *,
        answered: Callable[[Any], None] | None = None,
        is_untouched: Callable[[], bool] = lambda: True,
    ) -> dict[str, Any]:
        """See `Client.prompt`. `is_untouched`: see `SessionTurns`; else nothing is sent again."""
        if self.protocol_version == 1:
            return await super().prompt(session, prompt, answered=answered)
        params = {**_prompt_params(session, prompt), "idempotencyKey": uuid.uuid4().hex}
        ask = partial(self.request, "session/prompt", params, answered=_objects_only(answered))
        try:
            result = await ask()
        except RequestError as cut_off:
            data = cut_off.data if isinstance(cut_off.data, dict) else {}
            exited = data.get("component") == self.agent and "exitStatus" in data
            if not exited or not is_untouched():
                raise
            try:
                result = await ask()
            except (RequestError, ConnectionClosed):
                raise cut_off from None
        return _object("session/prompt", result)


def _prompt_params(session: str, prompt: str | Sequence[Any]) -> dict[str, Any]:
    blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
    return {"sessionId": session, "prompt": blocks}


def _object(method: str, result: Any) -> dict[str, Any]:
    if not isinstance(result, dict):
        raise _malformed(method, f"is {_kind(result)}, not an object")
    return result


def _malformed(method: str, problem: str) -> RemoteProtocolError:
    return RemoteProtocolError("the agent", f"its answer to {method} {problem}")


def _kind(value: Any) -> str:
    name = type(value).__name__
    return "null" if value is None else f"an {name}" if name == "int" else f"a {name}"


def _objects_only(answered: Callable[[Any], None] | None) -> Callable[[Any], None] | None:
    """A wrapper that calls `answered` only with results that are JSON objects; others raise in the
    caller."""
    if answered is None:
        return None
    called = answered
    return lambda result: called(result) if isinstance(result, dict) else None
