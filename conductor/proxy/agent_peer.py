"""The agent as a peer of a plugin: a method for each request that agents answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import trio

from conductor.acp.turns import Turns
from conductor.proxy.conversion import decode_params, encode
from conductor.proxy.peers import Peer
from conductor.proxy.prompt_turn import PromptTurn, TurnCollector

__all__ = ["AgentPeer"]


@attrs.frozen(eq=False, repr=False)
class AgentPeer(Peer):
    """The agent, with methods for the requests that agents answer.

    `request(…)` sends all others, such as extension methods.
    """

    _seen_turns: Callable[[], Turns[Any]]
    """Those that the plugin sees: of the client's prompts."""
    _turns: Turns[TurnCollector] = attrs.field(factory=lambda: Turns(2), init=False)
    """Those of `prompt_turn`. In version 1 the answer to a prompt has the stop reason."""

    async def prompt_turn(self, session_id: str, prompt: str | Sequence[Any]) -> PromptTurn:
        """Send a prompt (a text or content blocks), wait for the end of the turn and return it.

        The client sees the agent's updates, unless the session is `muted`. In version 2 of the
        protocol the turn ends after the response, so the handler then holds no lane.
        """
        blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
        self._turns.reports_running |= self._seen_turns().reports_running
        collector = TurnCollector(session_id, self._turns.of(session_id))
        remove = self._tap("session/update", collector.take)
        try:
            params = encode({"sessionId": session_id, "prompt": blocks})
            answer = decode_params(await self._request("session/prompt", params), dict)
            collector.answered(answer)
            if not collector.ended.is_set():
                self._release()
                await collector.ended.wait()
        finally:
            remove()
            collector.answered(None)
        return PromptTurn(collector.stop_reason, collector.text, answer)

    async def cancel(self, session_id: str) -> None:
        """Cancel the session's running turn (`session/cancel`)."""
        self._turns.of(session_id).cancel(trio.current_time())
        await self.notify("session/cancel", {"sessionId": session_id})

    async def new_session(self, cwd: str, mcp_servers: Sequence[Any] = (), **more: Any) -> str:
        """Open a session of the proxy's own, unknown to the client; returns its id."""
        params = {"cwd": cwd, "mcpServers": list(mcp_servers), **more}
        session_id: str = (await self.request("session/new", params))["sessionId"]
        return session_id

    async def load_session(
        self, session_id: str, cwd: str, mcp_servers: Sequence[Any] = (), **more: Any
    ) -> dict[str, Any]:
        """Open an earlier session; the agent sends its history first, as updates.

        Returns the result: modes and config options, if the agent has any. Version 1 of the
        protocol, for agents with the capability `loadSession`. `more` are further members of the
        params, as on the wire.
        """
        params = {"sessionId": session_id, "cwd": cwd, "mcpServers": list(mcp_servers), **more}
        return await self.request("session/load", params) or {}

    async def close_session(self, session_id: str) -> None:
        """Close a session: the agent frees it, and may keep its history."""
        await self.request("session/close", {"sessionId": session_id})

    async def set_config_option(
        self, session_id: str, config_id: str, value: str | bool
    ) -> list[dict[str, Any]]:
        """Set an option of a session: the id of one of its values, or a truth value.

        Returns all options of the session, since setting one may change others.
        """
        params = {"sessionId": session_id, "configId": config_id, "value": value}
        if isinstance(value, bool):
            params["type"] = "boolean"
        elif self._protocol_version() > 1:
            params["type"] = "id"
        result = await self.request("session/set_config_option", params) or {}
        options: list[dict[str, Any]] = result.get("configOptions", [])
        return options

    async def log_in(self, method_id: str) -> None:
        """Log in with an authentication method that the agent has named in `initialize`."""
        method = "authenticate" if self._protocol_version() == 1 else "auth/login"
        await self.request(method, {"methodId": method_id})

    async def log_out(self) -> None:
        """End the login of the agent."""
        await self.request("logout" if self._protocol_version() == 1 else "auth/logout", {})
