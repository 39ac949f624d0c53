"""`test-agent`: an agent without a model, which runs the commands in a prompt.

    acp-conductor prompt -- "python -m conductor.testing.agent" "help"

The commands (see `commands`) are read from the last text block that begins with one, so that a
proxy may put text before and after it; `echo` shows the whole prompt as it arrived. But for the ids
of sessions, which differ between processes as those of real agents do, ids count from 1 and nothing
depends on time or chance, so two runs send the same messages.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Any, ClassVar, Final, Literal

import attrs
import trio

from conductor import __version__
from conductor.error_codes import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    RESOURCE_NOT_FOUND,
)
from conductor.proxy import Agent, RequestError, on, run
from conductor.testing import updates
from conductor.testing.commands import (
    COMMANDS,
    CommandSession,
    CommandTurn,
    StopTurn,
    command_text,
    perform,
)
from conductor.testing.mcp_client import McpServerFailure, open_server

__all__ = ["TestAgent"]

_MODES: Final = [
    {"id": "ask", "name": "Ask", "description": "Ask before tools run"},
    {"id": "code", "name": "Code", "description": "Run tools without asking"},
]


@attrs.define(eq=False)
class TestAgent(Agent):
    """Answers prompts by running the commands of `conductor.testing.commands`."""

    __test__: ClassVar[bool] = False  # pytest: not a test case, despite the name

    session_ids: Literal["unique", "counted"] = "unique"
    """Whether the ids of sessions differ from those of other processes, or are `session-1`,
    `session-2` and so on."""
    failing: str = ""
    """Message of the error with which each prompt is refused, for example "Overloaded"."""
    _version: updates.Version = attrs.field(default=1, init=False)
    _sessions: dict[str, CommandSession] = attrs.field(factory=dict, init=False)
    _servers: trio.Nursery | None = attrs.field(default=None, init=False)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            self._servers = nursery
            yield
            nursery.cancel_scope.cancel()

    @on("initialize")
    async def initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        asked = params.get("protocolVersion")
        self._version = 2 if isinstance(asked, int) and asked >= 2 else 1
        info = {"name": "test-agent", "title": "Test agent", "version": __version__}
        if self._version == 1:
            return {
                "protocolVersion": 1,
                "agentInfo": info,
                "agentCapabilities": {
                    "loadSession": True,
                    "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
                    "mcpCapabilities": {"http": False, "sse": False},
                    "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
                },
                "authMethods": [],
            }
        session: dict[str, Any] = {
            "prompt": {"image": {}, "audio": {}, "embeddedContext": {}},
            "mcp": {"stdio": {}},
        }
        return {
            "protocolVersion": 2,
            "info": info,
            "capabilities": {"session": session},
        }

    # -- sessions ----------------------------------------------------------------------------------

    @on("session/new")
    async def new_session(self, params: dict[str, Any]) -> dict[str, Any]:
        session = CommandSession(self._new_id(), _cwd(params))
        self._sessions[session.id] = session
        await self._open(session, params)
        return {"sessionId": session.id, **self._state(session)}

    def _new_id(self) -> str:
        counted = f"session-{len(self._sessions) + 1}"
        return counted if self.session_ids == "counted" else f"{counted}-{token_hex(4)}"

    @on("session/load")
    async def load_session(self, params: dict[str, Any]) -> dict[str, Any]:
        session = await self._reopen(params)
        await self._replay(session)
        return self._state(session)

    @on("session/resume")
    async def resume_session(self, params: dict[str, Any]) -> dict[str, Any]:
        session = await self._reopen(params)
        if params.get("replayFrom"):
            await self._replay(session)
        return self._state(session)

    @on("session/list")
    async def list_sessions(self, params: dict[str, Any]) -> dict[str, Any]:
        cwd = params.get("cwd")
        found = [each for each in self._sessions.values() if cwd in (None, each.cwd)]
        return {"sessions": [{"sessionId": each.id, "cwd": each.cwd} for each in found]}

    @on("session/close")
    async def close_session(self, params: dict[str, Any]) -> dict[str, Any]:
        session = self._session(params)
        _cancel_turn(session)
        session.close()
        return {}

    @on("session/set_mode")
    async def set_mode(self, params: dict[str, Any]) -> dict[str, Any]:
        session = self._session(params)
        if params.get("modeId") not in [mode["id"] for mode in _MODES]:
            raise RequestError(INVALID_PARAMS, f"there is no mode {params.get('modeId')!r}")
        session.mode = params["modeId"]
        return {}

    @on("session/cancel")
    async def cancel(self, params: dict[str, Any]) -> None:
        session = self._sessions.get(params.get("sessionId", ""))
        if session is not None:
            _cancel_turn(session)

    # -- turns -------------------------------------------------------------------------------------

    @on("session/prompt")
    async def prompt(self, params: dict[str, Any]) -> dict[str, Any]:
        session = self._session(params)
        if self.failing:
            raise RequestError(INTERNAL_ERROR, self.failing)
        if session.turn is not None:
            raise RequestError(INVALID_REQUEST, "a turn of this session is already running")
        session.turns += 1
        session.turn = trio.CancelScope()
        turn = CommandTurn(
            self.client,
            session,
            self._version,
            prompt := params.get("prompt") or [],
            command_text(prompt),
            alone=_alone(),
            crash=self._crash,
            wait_room=self.wait_room,
        )
        session.remember("user_message_chunk", turn.text)
        # `session/cancel` arrives in the lane that this handler holds.
        self.release_lane()
        if self._version == 1:
            return {"stopReason": await self._take_turn(turn)}
        await turn.update(updates.message(turn.prompt_id, kind="user_message", content=prompt))
        await turn.update(updates.state("running"))
        self.start_soon(self._take_turn_2, turn)
        return {"messageId": turn.prompt_id}

    async def _take_turn(self, turn: CommandTurn) -> str:
        scope = turn.session.turn
        assert scope is not None
        try:
            with scope:
                await perform(turn)
                return "end_turn"
        except StopTurn as stop:
            return stop.reason
        finally:
            turn.session.turn = None
        return "cancelled"

    async def _take_turn_2(self, turn: CommandTurn) -> None:
        """Run a turn in version 2: the prompt is already answered, an update ends the turn."""
        try:
            reason = await self._take_turn(turn)
        except RequestError as exc:
            await turn.say(str(exc))
            reason = "end_turn"
        await turn.update(updates.state("idle", reason))

    # ----------------------------------------------------------------------------------------------

    async def _open(self, session: CommandSession, params: Mapping[str, Any]) -> None:
        """Start the MCP servers of a session. A server that fails to start is recorded, not
        raised."""
        declared: Sequence[Mapping[str, Any]] = params.get("mcpServers") or ()
        session.reopen()
        # A server may need a message of the client before it answers.
        self.release_lane()
        assert self._servers is not None
        for declaration in declared:
            await self._servers.start(_keep_server, session, declaration)
        if self._version == 1:
            self.start_soon(self._announce_commands, session)  # runs after the response is sent

    async def _announce_commands(self, session: CommandSession) -> None:
        update = {
            "sessionUpdate": "available_commands_update",
            "availableCommands": _available_commands(),
        }
        await self.client.notify("session/update", {"sessionId": session.id, "update": update})

    async def _reopen(self, params: Mapping[str, Any]) -> CommandSession:
        session = self._known(params)
        session.cwd = _cwd(params)
        await self._open(session, params)
        return session

    async def _replay(self, session: CommandSession) -> None:
        end = [{"sessionUpdate": "replay_complete"}] * (self._version == 2)
        for update in (*session.history, *end):
            await self.client.notify("session/update", {"sessionId": session.id, "update": update})

    def _state(self, session: CommandSession) -> dict[str, Any]:
        if self._version == 1:
            return {"modes": {"currentModeId": session.mode, "availableModes": _MODES}}
        return {"availableCommands": _available_commands()}

    def _known(self, params: Mapping[str, Any]) -> CommandSession:
        id = params.get("sessionId")
        if not isinstance(id, str) or id not in self._sessions:
            raise RequestError(RESOURCE_NOT_FOUND, "Resource not found", {"sessionId": id})
        return self._sessions[id]

    def _session(self, params: Mapping[str, Any]) -> CommandSession:
        session = self._known(params)
        if session.closed.is_set():
            raise RequestError(INVALID_PARAMS, f"{session.id} is closed")
        return session

    def _crash(self) -> None:
        assert self._servers is not None
        self._servers.start_soon(_crash)


def _cwd(params: Mapping[str, Any]) -> str:
    cwd = params.get("cwd")
    if not isinstance(cwd, str) or not cwd.startswith("/"):
        raise RequestError(INVALID_PARAMS, "cwd must be an absolute path")
    return cwd


def _cancel_turn(session: CommandSession) -> None:
    if session.turn is not None:
        session.turn.cancel()


def _available_commands() -> list[dict[str, Any]]:
    return [
        {"name": name, "description": command.about, "input": {"hint": command.arguments or "-"}}
        for name, command in COMMANDS.items()
    ]


async def _keep_server(
    session: CommandSession,
    declaration: Mapping[str, Any],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    name, closed = str(declaration.get("name", "?")), session.closed
    try:
        async with open_server(declaration, session.cwd) as server:
            session.servers[name] = server
            task_status.started()
            await closed.wait()
    except McpServerFailure as exc:
        session.broken[name] = str(exc)
        task_status.started()


async def _crash() -> None:
    raise RuntimeError("crashed, as the prompt said")


def _alone() -> bool:
    """Whether the agent has a process of its own, apart from the conductor's."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(spec, "name", "") in ("conductor.testing.agent", "conductor.standalone")


if __name__ == "__main__":
    # Imported again under its real name: here this module is `__main__`.
    from conductor.testing.agent import TestAgent as Imported

    run(Imported)
