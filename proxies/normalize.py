"""`normalize`: repairs known protocol errors of agents and clients.

Repairs that do not change well-formed messages are made for every client and agent, the others for
the agents of `_AGENTS`, by the name in `agentInfo`.

    early_updates            updates of a session that precede the response to session/new, from
                             which the client learns of the session, are sent after it
    loose_set_ups            MCP servers that are declared as in the settings of other programs (an
                             object by name, `env` or `headers` as an object, other types), absent
                             lists and relative directories become what the protocol says
    protocol_version_text    `protocolVersion` as a text becomes a number
    echoed_protocol_version  an agent that accepts any version speaks version 1
    missing_tool_call_id     tool calls without an id get one; an update without one is about the
                             last such call
    unannounced_tool_calls   the tool call of a permission request is announced first
    unfinished_tool_calls    tool calls that are pending or in progress when their turn ends become
                             failed, those of a cancelled turn of version 2 cancelled
    one_turn_at_a_time       a prompt waits until the session's turn has ended (version 1)

Options:
    add   repairs that are always made
    skip  repairs that are never made
"""

from __future__ import annotations

import fnmatch
import itertools
import os
import shlex
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs
import trio

from conductor.bounded_dict import BoundedDict
from conductor.errors import details_are_withheld
from conductor.json_values import decode_loosely
from conductor.proxy import (
    Forward,
    PermissionQuestion,
    Prompt,
    Proxy,
    Session,
    SessionSetup,
    TurnEnd,
    on,
    on_permission,
    on_prompt,
    on_session_setup,
    on_turn_end,
    on_update,
    per_session,
)

__all__ = ["Normalize"]

Quirk: TypeAlias = Literal[
    "early_updates",
    "echoed_protocol_version",
    "loose_set_ups",
    "missing_tool_call_id",
    "one_turn_at_a_time",
    "protocol_version_text",
    "unannounced_tool_calls",
    "unfinished_tool_calls",
]
# Clients that are known for loose set-ups get `normalize` without being asked
# (`conductor/adapters/known_clients.py`).
_EVERY_CLIENT: Final[frozenset[Quirk]] = frozenset({"loose_set_ups", "protocol_version_text"})
_EVERY_AGENT: Final[frozenset[Quirk]] = frozenset(
    {"early_updates", "protocol_version_text", "missing_tool_call_id", "unfinished_tool_calls"}
)
_AGENTS: Final[Mapping[str, set[Quirk]]] = {
    # `usage_update` before the answer to session/new (2.26.1); a second prompt in a turn fails.
    "*vibe*": {"one_turn_at_a_time"},
    # A second prompt during a turn is never answered (0.16.0).
    "*codex*": {"one_turn_at_a_time"},
    # No `tool_call` for a tool that asks permission (0.61.0); a second prompt cancels the first.
    "*gemini*": {"unannounced_tool_calls", "one_turn_at_a_time"},
    # A second prompt during a turn makes the first fail (0.24.4).
    "*qwen*": {"one_turn_at_a_time"},
    # Any protocol version is echoed, also those that it does not speak (0.10.30).
    "*fast-agent*": {"echoed_protocol_version"},
}
"""Quirks of agents beside those of every agent, by a glob for the name, with the version with which
they were observed."""

_MAX_CALLS: Final = 1000
"""Ids of announced tool calls of a session that are remembered; the oldest are forgotten."""


@attrs.define
class _NormalizedSession:
    turn: trio.StrictFIFOLock = attrs.field(factory=trio.StrictFIFOLock)
    last_id: str = ""
    """Generated id of the last tool call without one."""
    calls: BoundedDict[str, None] = attrs.field(factory=lambda: BoundedDict(_MAX_CALLS))
    """Ids of announced tool calls."""


@attrs.define
class Normalize(Proxy):
    """Repair known quirks of agents and clients."""

    on_error = "pass"

    add: list[Quirk] = attrs.field(factory=list)
    skip: list[Quirk] = attrs.field(factory=list)
    _active: frozenset[Quirk] = attrs.field(default=frozenset(), init=False)
    _opening: int = attrs.field(default=0, init=False)
    """Number of session/new and session/fork requests in flight."""
    _held_updates: dict[str, deque[bytes]] = attrs.field(factory=dict, init=False)
    """Updates that wait until the client knows their session."""
    _ids: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False)

    sessions = per_session(_NormalizedSession)

    @on("initialize")
    async def initialize(self, params: dict[str, Any], forward: Forward) -> Any:
        self._activate(_EVERY_CLIENT)
        result = await forward(self._with_number(params))
        info = result.get("agentInfo") or result.get("info") or {}
        name = str(info.get("name")).lower()
        own = [quirks for glob, quirks in _AGENTS.items() if fnmatch.fnmatchcase(name, glob)]
        self._activate(_EVERY_CLIENT.union(_EVERY_AGENT, *own))
        result = self._with_number(result)
        if "echoed_protocol_version" in self._active:
            result = {**result, "protocolVersion": 1}
        return result

    @on("session/new", "session/fork")
    async def open_session(self, params: dict[str, Any], forward: Forward) -> Any:
        self._opening += 1
        opened = ""
        try:
            result = await forward()
            opened = result["sessionId"]
            return result
        finally:
            self._opening -= 1
            for held in list(self._held_updates):
                if held == opened or not self._opening:
                    self.start_soon(self._send_held, held)  # runs after the response is sent

    @on_session_setup
    async def set_up(self, setup: SessionSetup, forward: Forward) -> Any:
        if "loose_set_ups" in self._active:
            _repair_set_up(
                setup.params,
                self.protocol_version,
                required=setup.opened_by in ("new", "load"),
                cwd=None if details_are_withheld() else os.getcwd(),
            )
        return await forward()

    @on_update("tool_call", "tool_call_update")
    async def tool_call(self, session: Session, update: dict[str, Any], forward: Forward) -> None:
        known = self.sessions[session.id]
        if "missing_tool_call_id" in self._active and not update.get("toolCallId"):
            new = update["sessionUpdate"] == "tool_call" or not known.last_id
            update["toolCallId"] = self._new_id(known) if new else known.last_id
        known.calls[str(update.get("toolCallId"))] = None
        await forward()

    @on("session/update")
    async def update(self, raw: bytes, forward: Forward) -> None:
        if "early_updates" in self._active and (self._opening or self._held_updates):
            id = decode_loosely(raw)["sessionId"]
            if id in self._held_updates or self.session_by_id(id).opened_by is None:
                self._held_updates.setdefault(id, deque()).append(raw)
                return
        await forward()

    @on_permission
    async def permission(
        self, session: Session, asked: PermissionQuestion, forward: Forward
    ) -> Any:
        known, holder = self.sessions[session.id], asked.params.get("subject") or asked.params
        call = holder.get("toolCall")
        if not isinstance(call, dict):
            return await forward()
        if "missing_tool_call_id" in self._active and not call.get("toolCallId"):
            call["toolCallId"] = known.last_id or self._new_id(known)
        if "unannounced_tool_calls" in self._active and call["toolCallId"] not in known.calls:
            kind = "tool_call" if session.protocol_version == 1 else "tool_call_update"
            announcement = {"title": "Tool", "status": "pending", **call, "sessionUpdate": kind}
            await self.client.update(session.id, announcement)
            session.call_table.update(announcement)
            known.calls[call["toolCallId"]] = None
        return await forward()

    @on_prompt
    async def prompt(self, session: Session, prompt: Prompt, forward: Forward) -> Any:
        if "one_turn_at_a_time" not in self._active or session.protocol_version > 1:
            return await forward()
        turn = self.sessions[session.id].turn
        if turn.locked():
            await prompt.wait(turn.acquire)
        else:
            turn.acquire_nowait()
        try:
            return await forward()
        finally:
            turn.release()

    @on_turn_end
    async def turn_ended(self, session: Session, end: TurnEnd) -> None:
        if "unfinished_tool_calls" in self._active:
            for call in end.unfinished:
                update = {"sessionUpdate": "tool_call_update", "toolCallId": call.id}
                await self.client.update(session.id, {**update, "status": call.status})

    # ----------------------------------------------------------------------------------------------

    def _activate(self, names: frozenset[Quirk]) -> None:
        self._active = (names | {*self.add}) - {*self.skip}

    def _with_number(self, params: dict[str, Any]) -> dict[str, Any]:
        version = params.get("protocolVersion")
        if "protocol_version_text" in self._active and isinstance(version, str):
            digits = version.strip().partition(".")[0]
            if digits.isascii() and digits.isdigit():
                return {**params, "protocolVersion": int(digits)}
        return params

    async def _send_held(self, id: str) -> None:
        """Send held updates; those that arrive meanwhile are queued behind them, in order."""
        held = self._held_updates.get(id, deque())
        while held:
            await self.client.notify("session/update", held.popleft())
        self._held_updates.pop(id, None)

    def _new_id(self, session: _NormalizedSession) -> str:
        session.last_id = f"conductor-call-{next(self._ids)}"
        return session.last_id


# -- set-ups ---------------------------------------------------------------------------------------
#
# Users copy declarations from the settings of other programs, and clients pass them on as they are:
# an object by name, `env` as an object, `type: streamable-http`; Lua writes an empty list as `{}`.
# Strict agents refuse them, others leave the server out. Well-formed params stay as they are.

_TYPES: Final = {
    **dict.fromkeys(("stdio", "local", "command"), "stdio"),
    **dict.fromkeys(("http", "streamablehttp", "httpstream", "remote"), "http"),
    "sse": "sse",
}
"""Types by their name in lower case without `-` and `_`."""
_OTHER_NAMES: Final = {
    "transport": "type",
    "transportType": "type",
    "serverUrl": "url",
    "httpUrl": "url",
    "environment": "env",
    "cmd": "command",
}


def _repair_set_up(
    params: dict[str, Any], version: int, *, required: bool, cwd: str | None
) -> None:
    """Make params, in place, what the schema of this version says.

    `required`: whether `mcpServers` must be there. `cwd` is the directory that relative ones are
    below, and the one of a session without; `None` if it is unknown.
    """
    if cwd is not None:
        params["cwd"] = _below(cwd, params.get("cwd") or ".")
        if isinstance(listed := params.get("additionalDirectories"), list):
            params["additionalDirectories"] = [_below(params["cwd"], each) for each in listed]
    if params.get("additionalDirectories", ()) in (None, {}):
        del params["additionalDirectories"]
    if "mcpServers" in params or (required and version == 1):
        params["mcpServers"] = _servers(params.get("mcpServers"), version)


def _below(base: Any, path: Any) -> Any:
    """A relative path as an absolute one below `base`."""
    if not isinstance(path, str) or os.path.isabs(path):
        return path
    return os.path.normpath(os.path.join(base, os.path.expanduser(path)))


def _servers(given: Any, version: int) -> Any:
    if given is None:
        return []
    if isinstance(given, Mapping):
        if set(given) == {"mcpServers"}:  # a whole file of settings
            return _servers(given["mcpServers"], version)
        if isinstance(given.get("command", given.get("url")), str | list):  # one server
            given = [given]
        else:
            given = [
                {"name": name, **each} if isinstance(each, Mapping) else each
                for name, each in given.items()
            ]
    if not isinstance(given, list):
        return given
    enabled = [each for each in given if not (isinstance(each, Mapping) and _is_off(each))]
    return [_server(each, version) if isinstance(each, Mapping) else each for each in enabled]


def _is_off(server: Mapping[str, Any]) -> bool:
    return server.get("disabled") is True or server.get("enabled") is False


def _server(given: Mapping[str, Any], version: int) -> dict[str, Any]:
    server = {_OTHER_NAMES.get(name, name): value for name, value in given.items()}
    told = str(server.get("type") or "").lower().replace("-", "").replace("_", "")
    kind = _TYPES.get(told, server.get("type") or None)
    if kind is None:
        is_sse = str(server.get("url") or "").split("?")[0].rstrip("/").endswith("/sse")
        kind = ("sse" if is_sse else "http") if "url" in server else "stdio"
    if kind == "stdio":
        _repair_program(server)
    elif kind in ("http", "sse"):
        server["headers"] = _pairs(server.get("headers"))
    if "name" not in server:
        source = str(server.get("command") or server.get("url") or "server")
        server["name"] = os.path.basename(source.rstrip("/")) or source
    if kind == "stdio" and version == 1:
        server.pop("type", None)
    elif server.get("type") != kind:
        server = {"type": kind, **{name: each for name, each in server.items() if name != "type"}}
    return server


def _repair_program(server: dict[str, Any]) -> None:
    command, args = server.get("command"), server.get("args")
    if isinstance(args, str):
        args = shlex.split(args)
    args = [_text(each) for each in args] if isinstance(args, list) else []
    if isinstance(command, list) and command:
        server["command"], *first = map(_text, command)
        args = [*first, *args]
    server["args"] = args
    server["env"] = _pairs(server.get("env"))


def _pairs(given: Any) -> Any:
    """Variables or headers as a list of names and values."""
    if given is None:
        return []
    if isinstance(given, Mapping):
        return [{"name": k, "value": _text(v)} for k, v in given.items() if v is not None]
    return [_pair(each) for each in given] if isinstance(given, list) else given


def _pair(given: Any) -> Any:
    if isinstance(given, str) and "=" in given:
        name, _, value = given.partition("=")
        return {"name": name, "value": value}
    if not isinstance(given, Mapping):
        return given
    if "name" not in given and isinstance(given.get("key"), str):
        given = {"name": given["key"], **{k: v for k, v in given.items() if k != "key"}}
    if "value" in given and not isinstance(given["value"], str):
        return {**given, "value": _text(given["value"])}
    return given


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
