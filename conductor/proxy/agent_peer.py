"""The agent as a peer of a plugin: a method for each request that agents answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from conductor.bounded_dict import BoundedDict
from conductor.proxy.conversion import decode_params, encode
from conductor.proxy.foreground_work import ForegroundWork
from conductor.proxy.peers import Peer, without_none
from conductor.proxy.prompt_turn import PromptTurn, TurnCollector

__all__ = ["AgentPeer"]

_MAX_SESSIONS: Final = 1000


@attrs.frozen(eq=False, repr=False)
class AgentPeer(Peer):
    """The agent, with methods for the requests that agents answer.

    `request(…)` sends all others, such as extension methods.
    """

    _work: BoundedDict[str, ForegroundWork] = attrs.field(
        factory=lambda: BoundedDict(_MAX_SESSIONS), init=False
    )
    """Work of the sessions of `prompt_turn`, by session id."""

    async def prompt_turn(self, session_id: str, prompt: str | Sequence[Any]) -> PromptTurn:
        """Send a prompt (a text or content blocks), wait for the end of the turn and return it.

        The client sees the agent's updates, unless the session is `muted`. In version 2 of the
        protocol the turn ends after the response, so the handler then holds no lane.
        """
        blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
        work = self._work.setdefault(session_id, ForegroundWork())
        collector = TurnCollector(session_id, work)
        remove = self._tap("session/update", collector.take)
        try:
            params = encode({"sessionId": session_id, "prompt": blocks})
            answer = decode_params(await self._request("session/prompt", params), dict)
            if "stopReason" not in answer:
                collector.is_accepted = True
                self._release()
                await collector.idle.wait()
        finally:
            remove()
        return PromptTurn(answer.get("stopReason") or collector.stop_reason, collector.text, answer)

    async def cancel(self, session_id: str) -> None:
        """Cancel the session's running turn (`session/cancel`)."""
        await self.notify("session/cancel", {"sessionId": session_id})

    async def cancel_tool_call(self, session_id: str, tool_call_id: str) -> None:
        """Cancel one tool call of a turn, which goes on. Version 2 of the protocol.

        Only for a tool call with the capability `cancel`. It returns when the agent has accepted;
        an update of the call tells its end. Raises `RequestError` if the call has ended.
        """
        params = {"sessionId": session_id, "toolCallId": tool_call_id}
        await self.request("tool_call/cancel", params)

    async def cancel_terminal(self, session_id: str, terminal_id: str) -> None:
        """Stop the command in a terminal of the agent; otherwise as `cancel_tool_call`."""
        params = {"sessionId": session_id, "terminalId": terminal_id}
        await self.request("terminal/cancel", params)

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
        return await self._open("session/load", session_id, cwd, mcp_servers, more)

    async def resume_session(
        self, session_id: str, cwd: str, mcp_servers: Sequence[Any] = (), **more: Any
    ) -> dict[str, Any]:
        """Open an earlier session without its history; arguments and result as in
        `load_session`."""
        return await self._open("session/resume", session_id, cwd, mcp_servers, more)

    async def fork_session(
        self, session_id: str, cwd: str, mcp_servers: Sequence[Any] = (), **more: Any
    ) -> str:
        """Open a new session with the history of another one; returns the new id."""
        result = await self._open("session/fork", session_id, cwd, mcp_servers, more)
        forked: str = result["sessionId"]
        return forked

    async def _open(
        self,
        method: str,
        session_id: str,
        cwd: str,
        mcp_servers: Sequence[Any],
        more: Mapping[str, Any],
    ) -> dict[str, Any]:
        params = {"sessionId": session_id, "cwd": cwd, "mcpServers": list(mcp_servers), **more}
        return await self.request(method, params) or {}

    async def list_sessions(
        self, *, cwd: str | None = None, cursor: str | None = None
    ) -> dict[str, Any]:
        """Return one page of the agent's sessions: `sessions` and, if there are more,
        `nextCursor`."""
        page: dict[str, Any] = await self.request(
            "session/list", without_none(cwd=cwd, cursor=cursor)
        )
        return page

    async def close_session(self, session_id: str) -> None:
        """Close a session: the agent frees it, and may keep its history."""
        await self.request("session/close", {"sessionId": session_id})

    async def delete_session(self, session_id: str) -> None:
        """Delete a session with its history."""
        await self.request("session/delete", {"sessionId": session_id})

    async def set_mode(self, session_id: str, mode_id: str) -> None:
        """Set the mode of a session. Version 1 of the protocol; in version 2 it is an option."""
        await self.request("session/set_mode", {"sessionId": session_id, "modeId": mode_id})

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

    async def set_title(self, session_id: str, title: str) -> str:
        """Set the title of a session; returns the title that the agent keeps."""
        params = {"sessionId": session_id, "title": title}
        kept: str = (await self.request("session/set_title", params))["title"]
        return kept

    async def session_status(self, session_id: str) -> str:
        """Return whether the agent has a session in memory: `open` or `saved`."""
        result: dict[str, Any] = await self.request("session/status", {"sessionId": session_id})
        return str(result["status"])

    async def archive_session(self, session_id: str) -> None:
        """Hide a session from the list; the agent keeps its history."""
        await self.request("session/archive", {"sessionId": session_id})

    async def unarchive_session(self, session_id: str) -> None:
        """List a session again."""
        await self.request("session/unarchive", {"sessionId": session_id})

    async def log_in(self, method_id: str) -> None:
        """Log in with an authentication method that the agent has named in `initialize`."""
        method = "authenticate" if self._protocol_version() == 1 else "auth/login"
        await self.request(method, {"methodId": method_id})

    async def log_out(self) -> None:
        """End the login of the agent."""
        await self.request("logout" if self._protocol_version() == 1 else "auth/logout", {})

    async def auth_status(self) -> dict[str, Any]:
        """Return whether a login is needed (`state`), and the `accounts` of the agent."""
        status: dict[str, Any] = await self.request("auth/status", {})
        return status

    async def list_providers(self) -> list[dict[str, Any]]:
        """Return the providers of models that can be configured."""
        result: dict[str, Any] = await self.request("providers/list", {})
        providers: list[dict[str, Any]] = result["providers"]
        return providers

    async def set_provider(
        self,
        provider_id: str,
        api_type: str,
        base_url: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Replace the configuration of a provider; `headers` may hold a secret."""
        await self.request(
            "providers/set",
            {
                "providerId": provider_id,
                "apiType": api_type,
                "baseUrl": base_url,
                "headers": dict(headers or {}),
            },
        )

    async def disable_provider(self, provider_id: str) -> None:
        """Disable a provider."""
        await self.request("providers/disable", {"providerId": provider_id})
