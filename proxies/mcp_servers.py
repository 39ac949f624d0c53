"""`mcp_servers`: adds, replaces and removes MCP servers of sessions, by directory and agent.

Most clients give the same servers to all sessions and agents. An entry adds a server, replaces the
client's server of the same name, or removes servers.

Options:
    servers  entries; later ones win. Each has a `name` and one of `command`, `url` and `remove`; it
             is for the sessions in `cwd` and the agents that it names; see `Server`

A server of a type that neither the agent nor the MCP bridge connects to (http, sse, with
`mcp_bridge: off`) is left out with a notice. If the agent refuses a session and names an added
server in the error, the session is set up without it, with a notice.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
from collections.abc import Sequence
from typing import Any, Final, Literal

import attrs

from conductor.directories import directory_spellings, glob_spellings
from conductor.error_codes import INVALID_PARAMS
from conductor.proxy import Forward, Proxy, RequestError, SessionSetup, get_logger, on_session_setup
from conductor.proxy.commands import program_warning
from proxies.shared.paths import matches

__all__ = ["McpServers", "Server"]

_LACKS: Final = "neither the agent nor the MCP bridge connects to servers of the type {}"

log = get_logger(component="mcp_servers")


@attrs.frozen
class Server:
    """One entry."""

    name: str
    """The name of the server; with `remove`, a glob."""
    command: list[str] = attrs.field(factory=list)
    """A program and its arguments."""
    url: str | None = None
    """In place of `command`: the URL of a server."""
    type: Literal["http", "sse"] = "http"
    """The transport of `url`."""
    env: dict[str, str] = attrs.field(factory=dict, repr=False)
    """Environment variables for `command`."""
    headers: dict[str, str] = attrs.field(factory=dict, repr=False)
    """HTTP headers for `url`."""
    remove: bool = False
    """Whether servers of this name are removed instead."""
    required: bool = False
    """Whether the session fails without this server; else it is left out with a notice."""
    cwd: list[str] = attrs.field(factory=list)
    """Globs for the session's directory; without it, all."""
    agent: list[str] = attrs.field(factory=list)
    """Globs for the agent's name; without it, all."""

    def __attrs_post_init__(self) -> None:
        if bool(self.command) + (self.url is not None) + self.remove != 1:
            raise ValueError("a server has one of `command`, `url` and `remove: true`")
        if self.env and not self.command:
            raise ValueError("`env` belongs to a `command`; a `url` has `headers`")
        if self.headers and self.url is None:
            raise ValueError("`headers` belong to a `url`; a `command` has `env`")

    def applies_to(self, cwd: str, agent: str) -> bool:
        directories = directory_spellings(cwd)
        globs = [each for glob in self.cwd for each in glob_spellings(os.path.expanduser(glob))]
        is_here = any(matches(each, glob) for each in directories for glob in globs)
        return (not self.cwd or is_here) and (
            not self.agent or any(fnmatch.fnmatchcase(agent, glob) for glob in self.agent)
        )

    def declaration(self, version: int) -> dict[str, Any]:
        """Return the declaration for the agent."""
        if self.url is not None:
            headers = _pairs(self.headers)
            return {"type": self.type, "name": self.name, "url": self.url, "headers": headers}
        program, *args = self.command
        # Agents require an absolute path, and may have another PATH.
        command = shutil.which(program) or program
        made = {"name": self.name, "command": command, "args": args, "env": _pairs(self.env)}
        return made if version == 1 else {"type": "stdio", **made}


@attrs.define
class McpServers(Proxy):
    """Add, replace and remove MCP servers."""

    servers: list[Server]

    def option_warnings(self) -> Sequence[tuple[str, str]]:
        return [
            ("servers", f"MCP server {entry.name}: {why}; few agents tell the user")
            for entry in self.servers
            if (why := program_warning(entry.command, entry.env)) is not None
        ]

    @on_session_setup
    async def amend(self, setup: SessionSetup, forward: Forward) -> Any:
        agent = str(self.agent_info.get("name", ""))
        entries = [each for each in self.servers if each.applies_to(setup.cwd, agent)]
        lacking = [each for each in entries if not self._is_connected_to(each)]
        for entry in lacking:
            if entry.required:
                why = f"MCP server {entry.name}: {_LACKS.format(entry.type)}"
                raise RequestError(INVALID_PARAMS, why)
        for entry in entries:
            if entry not in lacking:
                setup.mcp_servers = self._apply(setup.mcp_servers, entry)
        result = await self._set_up(setup, forward)
        for entry in lacking:
            log.warning("MCP server left out: agent lacks the type", name=entry.name)
            title = f"MCP server {entry.name} is left out: {_LACKS.format(entry.type)}"
            self._tell(setup, result, title, "`mcp_bridge: auto` connects to it for the agent")
        return result

    async def _set_up(self, setup: SessionSetup, forward: Forward) -> Any:
        """Forward; again without the servers that the agent refuses and that are not required."""
        try:
            return await forward()
        except RequestError as exc:
            refused = self._refused_names(setup, exc)
            # The MCP bridge names a server so; it refuses with `mcp: required: true` alone.
            by_bridge = isinstance(exc.data, dict) and "mcpServer" in exc.data
            if by_bridge or not refused:
                raise
            reason = exc.message
        log.warning("MCP servers left out: the agent refused the session", names=refused)
        setup.mcp_servers = [each for each in setup.mcp_servers if each["name"] not in refused]
        result = await forward()
        title = f"The agent refused MCP server {', '.join(refused)}: the session goes on without"
        self._tell(setup, result, title, reason)
        return result

    def _refused_names(self, setup: SessionSetup, refusal: RequestError) -> list[str]:
        """The names of added servers that may be left out, and that the agent's refusal names."""
        text = f"{refusal.message} {refusal.data}"
        declared = {each["name"]: each for each in setup.mcp_servers}
        return [
            entry.name
            for entry in self.servers
            if not entry.remove
            and not entry.required
            and declared.get(entry.name) == entry.declaration(self.protocol_version)
            and re.search(rf"(?<!\w){re.escape(entry.name)}(?!\w)", text)
        ]

    def _tell(self, setup: SessionSetup, result: Any, title: str, reason: str) -> None:
        """Show a notice in the session, after the response that opens it."""

        async def tell(session: str) -> None:
            await self.session_by_id(session).notice(title, reason, severity="warning")

        self.after_answer(tell, result.get("sessionId") or setup.session_id)

    def _apply(self, servers: list[dict[str, Any]], entry: Server) -> list[dict[str, Any]]:
        if entry.remove:
            return [each for each in servers if not fnmatch.fnmatchcase(each["name"], entry.name)]
        made = entry.declaration(self.protocol_version)
        if any(each["name"] == entry.name for each in servers):
            return [made if each["name"] == entry.name else each for each in servers]
        return [*servers, made]

    def _is_connected_to(self, entry: Server) -> bool:
        """Whether the agent or the MCP bridge connects to a server of this type.

        With the bridge, the agent has `acp`. A capability is true in version 1, `{}` in version 2.
        """
        if entry.url is None:
            return True
        capabilities = self.agent_capabilities
        if self.protocol_version == 1:
            offered = capabilities.get("mcpCapabilities")
        else:
            offered = (capabilities.get("session") or {}).get("mcp")
        return any((offered or {}).get(each) not in (None, False) for each in (entry.type, "acp"))


def _pairs(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]
