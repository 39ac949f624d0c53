"""`session_processes`: a process of the agent for each session.

Some agents have one session, or share something among their sessions, such as MCP servers of one
name. The first session belongs to the agent of the chain; each further one that is open at the same
time gets a process of its own. It ends when the session is closed or deleted, and with the chain.
Closing is announced for an agent that cannot close sessions.

Options:
    processes  that run at the same time beside the agent of the chain; default 4. A session beyond
               them is an error

The processes start as the agent does, with the client's capabilities; a login is repeated in those
that start after it. `session/list` is answered by the agent of the chain, with the sessions in
other processes that it does not know. Other messages without a session are for that agent alone.
It runs in the conductor's process, without `isolate` and `on_failure: restart`.
"""

from __future__ import annotations

import uuid
from typing import Any

import attrs
from attrs.validators import ge

from conductor.error_codes import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST
from conductor.proxy import (
    Forward,
    Placement,
    Proxy,
    RequestError,
    SessionSetup,
    on,
    on_session_setup,
)
from proxies.session_processes.process import ProcessEnded, SessionProcess
from proxies.shared.agent_capabilities import SESSION, has_capability, with_capability

__all__ = ["SessionProcesses"]


def relayed(method: str) -> Any:
    """A handler that sends a request to the agent that has its session."""

    @on(method)
    async def handle(self: SessionProcesses, params: dict[str, Any], forward: Forward) -> Any:
        return await self._relayed(method, params, forward)

    return handle


@attrs.define
class SessionProcesses(Proxy):
    """Give each session a process of the agent."""

    processes: int = attrs.field(default=4, validator=ge(1))

    _first: set[str] = attrs.field(factory=set, init=False)
    """The sessions of the agent of the chain."""
    _is_opening: bool = attrs.field(default=False, init=False)
    """Whether that agent opens a session."""
    _of: dict[str, SessionProcess] = attrs.field(factory=dict, init=False)
    """By the id of the session that the client knows."""
    _running: set[SessionProcess] = attrs.field(factory=set, init=False)
    _login: tuple[str, dict[str, Any]] | None = attrs.field(default=None, init=False)
    _can_close: bool = attrs.field(default=True, init=False)

    def placement(self) -> Placement:
        return Placement(effects={"opens_agents"})

    @on("initialize")
    async def announce(self, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        if version == 1 and not has_capability(result, SESSION, "close"):
            self._can_close = False
            return with_capability(result, SESSION, "close", {})
        return result

    @on("authenticate", "auth/login")
    async def log_in(self, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        method = "authenticate" if self.protocol_version == 1 else "auth/login"
        self._login = (method, params)
        return result

    @on("logout", "auth/logout")
    async def log_out(self, params: dict[str, Any], forward: Forward) -> Any:
        self._login = None
        return await forward()

    @on_session_setup
    async def set_up(self, setup: SessionSetup, forward: Forward) -> Any:
        method, params = f"session/{setup.opened_by}", setup.params
        reopened = setup.session_id if setup.opened_by != "fork" else None
        if reopened in self._of:
            return await self._relayed(method, params, forward)
        if reopened in self._first or not (self._first or self._is_opening):
            return await self._open_first(reopened, forward)
        return await self._open_process(method, params, reopened)

    prompt = relayed("session/prompt")
    set_mode = relayed("session/set_mode")
    set_option = relayed("session/set_config_option")
    status = relayed("session/status")
    set_title = relayed("session/set_title")
    archive = relayed("session/archive")
    unarchive = relayed("session/unarchive")

    @on("session/cancel")
    async def cancel(self, params: dict[str, Any], forward: Forward) -> None:
        process = self._of.get(str(params.get("sessionId")))
        if process is None:
            await forward()
        else:
            await process.notify("session/cancel", params)

    @on("session/close")
    async def close(self, params: dict[str, Any], forward: Forward) -> Any:
        id = str(params.get("sessionId"))
        if self._can_close:
            result = await self._relayed("session/close", params, forward)
        elif id not in self._of and id not in self._first:
            raise RequestError(INVALID_PARAMS, "session_processes: there is no such session")
        else:
            result = {}
            await self._cancel(id, params)
        self._forget(id)
        return result

    @on("session/delete")
    async def delete(self, params: dict[str, Any], forward: Forward) -> Any:
        result = await self._relayed("session/delete", params, forward)
        self._forget(str(params.get("sessionId")))
        return result

    @on("session/list")
    async def show(self, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        listed = result.get("sessions") if isinstance(result, dict) else None
        if not isinstance(listed, list) or params.get("cursor") is not None:
            return result
        self.release_lane()
        known = {str(each.get("sessionId")) for each in listed if isinstance(each, dict)}
        running = [each for each in self._of.values() if each.client_id not in known]
        others = [await process.listed(params) for process in running]
        return {**result, "sessions": [*listed, *filter(None, others)]}

    # ----------------------------------------------------------------------------------------------

    async def _open_first(self, reopened: str | None, forward: Forward) -> Any:
        self._is_opening = True
        try:
            result = await forward()
        finally:
            self._is_opening = False
        id = result.get("sessionId", reopened) if isinstance(result, dict) else reopened
        if id in self._of:
            raise RequestError(
                INTERNAL_ERROR, "session_processes: the agent gave an id that is in use"
            )
        if isinstance(id, str):
            self._first.add(id)
        return result

    async def _open_process(self, method: str, params: dict[str, Any], reopened: str | None) -> Any:
        self.release_lane()
        await self._wait_for_room()
        process = SessionProcess(self._claim)
        if reopened is not None:
            process.opened(reopened, reopened)
            self._of[reopened] = process
        self._running.add(process)
        self.start_soon(self._run, process)
        try:
            await process.wait_started()
            result = await process.request(method, params) or {}
            id = result.get("sessionId", reopened)
            if not isinstance(id, str):
                raise RequestError(INTERNAL_ERROR, "session_processes: the agent opened no session")
            process.opened(id)
            return result if id == process.client_id else {**result, "sessionId": process.client_id}
        except BaseException:
            process.end()
            self._of.pop(process.client_id, None)
            raise

    def _claim(self, agent_id: str, process: SessionProcess) -> str:
        id = agent_id
        while id in self._of or id in self._first:  # each process counts from one, say
            id = f"{agent_id}-{uuid.uuid4().hex[:8]}"
        self._of[id] = process
        return id

    async def _run(self, process: SessionProcess) -> None:
        try:
            await process.run(self, self._login)
        finally:
            self._running.discard(process)

    async def _wait_for_room(self) -> None:
        """Wait for processes that are stopping. Raises `RequestError` if none is, and all run."""
        while len(self._running) >= self.processes:
            stopping = [each for each in self._running if each.is_ending]
            if not stopping:
                many = f"{self.processes} processes run beside the first; close a session"
                raise RequestError(INVALID_REQUEST, f"session_processes: {many}")
            await stopping[0].stopped.wait()

    async def _relayed(self, method: str, params: dict[str, Any], forward: Forward) -> Any:
        """Send a request to the agent that has its session."""
        id = str(params.get("sessionId"))
        if (process := self._of.get(id)) is None:
            return await forward()
        try:
            return await process.request(method, params)
        except ProcessEnded:
            self._forget(id)
            raise

    async def _cancel(self, id: str, params: dict[str, Any]) -> None:
        if id in self._of:
            await self._of[id].notify("session/cancel", params)
        else:
            await self.agent.notify("session/cancel", params)

    def _forget(self, id: str) -> None:
        self._first.discard(id)
        if (process := self._of.pop(id, None)) is not None:
            process.end()
