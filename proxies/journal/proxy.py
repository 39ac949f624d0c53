"""`journal`: keeps sessions, for an agent that cannot list or load them.

Each session is a file: its prompts, the agent's texts, tool calls and plans. The proxy announces
and answers what the agent lacks of `session/list`, `load`, `resume`, `fork` and `delete`. A session
that is loaded is shown again from its file; the agent gets a new session, and a transcript before
the first prompt. A notice says so: the agent has not loaded it. What the agent can do, it does; if
it answers `session/load` with an error, the file is used.

For agents of version 1: in version 2 every agent lists, resumes and replays sessions. A client of
version 2 has it behind `v1_v2`.

Options:
    directory   where the files are; default: `journal` in the state directory of the user. Each
                agent has a directory in it
    max_bytes   of one file; beyond it, the oldest turns are left out; default 4 MiB. An update of
                more than a sixteenth of it is shortened
    sessions    files of one agent; for a further one, the oldest is removed; default 200
    transcript  characters of the newest messages that the agent gets; default 40000
    mask        whether secrets are masked by their form, as `redact` does; default true
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import trio
from attrs.validators import ge

from conductor.directories import same_directory
from conductor.error_codes import (
    AUTHENTICATION_REQUIRED,
    INTERNAL_ERROR,
    REQUEST_CANCELLED,
    RESOURCE_NOT_FOUND,
)
from conductor.proxy import Forward, Proxy, RequestError, get_logger, on
from conductor.proxy.slash_commands import is_slash_command
from conductor.setting_forms import Kind, state_after
from proxies.journal.files import JournalFiles, KeptSession, agent_directory, masker
from proxies.journal.session import JournalSession, has_transcript, notice, replayed, transcript_of
from proxies.shared.capabilities import has_member

__all__ = ["Journal"]

log = get_logger(component="journal")

_PASSED_ERRORS = (AUTHENTICATION_REQUIRED, REQUEST_CANCELLED)
"""Login required, cancelled: errors of the agent's own `session/load` that stay."""
_KINDS: Final[Mapping[str, Kind]] = {"modeId": "mode", "modelId": "model", "value": "option"}
"""Kinds of settings, by the member of the params that has the value."""


@attrs.define
class Journal(Proxy):
    """Keep sessions for an agent that cannot list or load them."""

    versions = (1,)  # every agent of version 2 has sessions

    directory: Path | None = None
    max_bytes: int = attrs.field(default=4 << 20, validator=ge(65536))
    sessions: int = attrs.field(default=200, validator=ge(1))
    transcript: int = attrs.field(default=40_000, validator=ge(0))
    mask: bool = True

    _files: JournalFiles | None = attrs.field(default=None, init=False)
    """`None`: the agent lists and loads sessions itself."""
    _open: dict[str, JournalSession] = attrs.field(factory=dict, init=False)
    _by_agent: dict[str, JournalSession] = attrs.field(factory=dict, init=False)
    """By the id of the agent's session."""
    _agent_has: frozenset[str] = attrs.field(default=frozenset(), init=False)
    """Methods on sessions that the agent announces."""
    _silent: set[str] = attrs.field(factory=set, init=False)
    """Sessions of the agent with a replay that the client has not asked for."""
    _restarted: set[str] = attrs.field(factory=set, init=False)
    """Open sessions of a restarted proxy with a set-up that is still to be repeated."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            for session in list(self._open.values()):
                self._close(session)

    async def on_restart(self, sessions: Sequence[str]) -> None:
        self._restarted = set(sessions)
        for id in sessions if self._files is not None else ():
            if (kept := await self._read(id)) is not None:
                session = self._add(id, kept.agent_session or id, {}, kept)
                if not kept.is_prompted and session.agent_id != id:
                    session.transcript = transcript_of(kept, self.transcript)

    @on("initialize")
    async def announce(self, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        capabilities = dict(result.get("agentCapabilities") or {})
        session = dict(capabilities.get("sessionCapabilities") or {})
        has = {f"session/{name}" for name, value in session.items() if value is not None}
        if capabilities.get("loadSession"):
            has.add("session/load")
        self._agent_has = frozenset(has)
        if {"session/load", "session/list"} <= has:
            return result
        name = str((result.get("agentInfo") or {}).get("name") or "agent")
        directory = agent_directory(self.directory, name)
        mask = masker() if self.mask else str
        self._files = JournalFiles(directory, self.max_bytes, self.sessions, mask)
        # From a list of the agent's own, only the agent could delete.
        added = ("list", "resume", "fork") + (("delete",) if "session/list" not in has else ())
        for name in added:
            session[name] = {} if session.get(name) is None else session[name]
        capabilities |= {"loadSession": True, "sessionCapabilities": session}
        return {**result, "agentCapabilities": capabilities}

    @on("session/new")
    async def new(self, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        return result if self._files is None else self._opened_new(params, result)

    @on("session/load")
    async def load(self, params: dict[str, Any], forward: Forward) -> Any:
        return await self._reopen("session/load", params, forward)

    @on("session/resume")
    async def resume(self, params: dict[str, Any], forward: Forward) -> Any:
        return await self._reopen("session/resume", params, forward)

    @on("session/fork")
    async def fork(self, params: dict[str, Any], forward: Forward) -> Any:
        files, id = self._files, params.get("sessionId")
        if files is None or not isinstance(id, str):
            return await forward()
        if session := self._open.get(id):
            session.flush()
        kept, is_own = await self._read(id), "session/fork" not in self._agent_has
        if is_own and self._restarted:
            answer = await self._answer_of_replay(forward)
            if answer is not None:
                return answer
        if not is_own:
            params["sessionId"] = self._agent_id(id, kept)
            result = await forward()
        elif kept is None:
            raise _unknown(id)
        else:
            result = await self._new_agent_session(params)
        answer = self._opened_new(params, result, kept)
        if is_own:
            fork = self._open[answer["sessionId"]]
            fork.transcript = transcript_of(kept, self.transcript) if kept else ""
            self.after_answer(self._tell, fork, "The agent has not forked this session")
        return answer

    @on("session/list")
    async def list_sessions(self, params: dict[str, Any], forward: Forward) -> Any:
        if self._files is None:
            return await forward()
        result: dict[str, Any] = {"sessions": []}
        if "session/list" in self._agent_has:
            result = await forward()
            if result.get("nextCursor"):
                return result
        for session in self._open.values():
            session.flush()
        known = {each.get("sessionId") for each in result.get("sessions") or ()}
        known |= {open.id for open in self._open.values() if open.agent_id in known}
        kept = await trio.to_thread.run_sync(self._files.sessions)
        cwd = params.get("cwd")
        own = [
            each.info()
            for each in kept
            if each.id not in known and (not isinstance(cwd, str) or same_directory(cwd, each.cwd))
        ]
        return {**result, "sessions": [*(result.get("sessions") or ()), *own]}

    @on("session/delete")
    async def delete_session(self, params: dict[str, Any], forward: Forward) -> Any:
        files, id = self._files, params.get("sessionId")
        if files is None or not isinstance(id, str):
            return await forward()
        session = self._open.get(id)
        kept = await self._read(id)
        if session is not None and session.running:
            await self.agent.notify("session/cancel", {"sessionId": session.agent_id})
        result: Any = {}
        if "session/delete" in self._agent_has and not (session and session.is_lost):
            params["sessionId"] = self._agent_id(id, kept)
            try:
                result = await forward()
            except RequestError:
                if kept is None:
                    raise
        elif kept is None and session is None:
            raise _unknown(id)
        self._forget(id)
        files.delete(id)
        return result

    @on("session/close")
    async def close(self, params: dict[str, Any], forward: Forward) -> Any:
        id = params.get("sessionId")
        session = self._open.get(str(id))
        if session is not None and session.is_lost:
            result: Any = {}
        else:
            session = self._with_agent_id(params)
            result = await forward()
        if session is not None:
            self._close(session)
            self._forget(str(id))
        return result

    @on("session/prompt")
    async def prompt(self, params: dict[str, Any], forward: Forward) -> Any:
        session, blocks = self._with_agent_id(params), params.get("prompt")
        if session is None or not isinstance(blocks, list):
            return await forward()
        is_first = session.add_prompt(blocks)
        given = "" if is_slash_command(blocks) else session.transcript
        if given:
            params["prompt"] = [{"type": "text", "text": given}, *blocks]
        session.running += 1
        try:
            result = await forward()
        except RequestError as exc:
            session.may_be_lost |= isinstance(exc.data, dict) and "component" in exc.data
            raise
        finally:
            session.running -= 1
            session.flush()
            self._forget_agent_id(session)
        if given:
            session.transcript = ""
        if is_first and session.title:
            info = {"sessionUpdate": "session_info_update", "title": session.title}
            await self.client.update(session.id, info)
        return result

    @on("session/update")
    async def update(self, params: dict[str, Any], forward: Forward) -> None:
        agent_id, update = str(params.get("sessionId")), params.get("update")
        if agent_id in self._silent:
            return
        session = self._by_agent.get(agent_id)
        if session is not None and isinstance(update, dict):
            if not (session.running and update.get("sessionUpdate") == "user_message_chunk"):
                session.add_update(update)
            elif has_transcript(update):
                return  # the agent repeats what the user has not written
            params["sessionId"] = session.id
        await forward()

    # -- messages that need nothing but the id that the other side knows ---------------------------

    @on("session/cancel")
    @on("session/status")
    @on("session/set_title")
    @on("session/archive")
    @on("session/unarchive")
    async def to_agent(self, params: dict[str, Any], forward: Forward) -> Any:
        self._with_agent_id(params)
        return await forward()

    @on("session/set_mode")
    @on("session/set_model", source="client")
    @on("session/set_config_option")
    async def change_setting(self, params: dict[str, Any], forward: Forward) -> Any:
        session = self._with_agent_id(params)
        result = await forward()
        if session is not None:
            name = next((each for each in _KINDS if each in params), "value")
            told = result if isinstance(result, dict) else {}
            session.opened = state_after(session.opened, _KINDS[name], params.get(name), told)
        return result

    @on("session/request_permission")
    @on("elicitation/create")
    @on("fs/read_text_file")
    @on("fs/write_text_file")
    @on("terminal/create")
    @on("terminal/output")
    @on("terminal/release")
    @on("terminal/wait_for_exit")
    @on("terminal/kill")
    async def to_client(self, params: dict[str, Any], forward: Forward) -> Any:
        if session := self._by_agent.get(str(params.get("sessionId"))):
            params["sessionId"] = session.id
        return await forward()

    # ----------------------------------------------------------------------------------------------

    async def _reopen(self, method: str, params: dict[str, Any], forward: Forward) -> Any:
        id = params.get("sessionId")
        if self._files is None or not isinstance(id, str):
            return await forward()
        if id in self._restarted:
            answer = await self._answer_of_replay(forward, id)
            if answer is not None:
                return answer
        session, kept = self._open.get(id), await self._read(id)
        is_there = session is not None and not (session.may_be_lost or session.is_lost)
        if session is not None and is_there and "session/load" not in self._agent_has:
            session.flush()  # the agent has it: it needs to be shown only
            await self._replay(method, id, await self._read(id))
            return session.opened
        if {method, "session/load"} & self._agent_has:
            try:
                return await self._reopened_by_agent(method, params, kept, forward)
            except RequestError as exc:
                if kept is None or exc.code in _PASSED_ERRORS:
                    raise
                log.warning("the agent cannot reopen the session", session=id, error=str(exc))
        if kept is None:
            raise _unknown(id)
        result = await self._new_agent_session(params)
        session = self._add(id, result["sessionId"], result, kept)
        session.transcript = transcript_of(kept, self.transcript)
        await self._replay(method, id, kept)
        self.after_answer(self._tell, session, "The agent has not loaded this session")
        return session.opened

    async def _answer_of_replay(self, forward: Forward, id: str | None = None) -> Any:
        """Forward a set-up after a restart of this proxy. A replayed one is answered from the
        session log: return that answer. A new request is refused by the agent: return `None`."""
        try:
            result = await forward()
        except RequestError:
            return None
        id = id or (result.get("sessionId") if isinstance(result, dict) else None)
        self._restarted.discard(str(id))
        return result if id in self._open else None

    async def _reopened_by_agent(
        self, method: str, params: dict[str, Any], kept: KeptSession | None, forward: Forward
    ) -> Any:
        """Let the agent load or resume the session; `resume` as a load that is not shown."""
        id: str = params["sessionId"]
        agent_id = params["sessionId"] = self._agent_id(id, kept)
        session = self._add(id, agent_id, {}, kept)
        session.is_replayed = kept is not None
        try:
            if method in self._agent_has:
                result = await forward()
            else:
                self._silent.add(agent_id)
                result = await self.agent.request("session/load", params)
        except BaseException:
            self._forget(id)
            raise
        finally:
            session.is_replayed = False
            self._silent.discard(agent_id)
        session.opened = dict(result or {})
        return result

    async def _new_agent_session(self, params: dict[str, Any]) -> dict[str, Any]:
        """Open a session of the agent like the one that the params name."""
        like = {name: value for name, value in params.items() if name != "sessionId"}
        result = await self.agent.request("session/new", {"mcpServers": [], **like})
        if not isinstance(result, dict) or not isinstance(result.get("sessionId"), str):
            raise RequestError(INTERNAL_ERROR, "journal: the agent has opened no session")
        return result

    async def _replay(self, method: str, id: str, kept: KeptSession | None) -> None:
        if method != "session/load" or kept is None:
            return
        if kept.is_cut:
            await self._notice(id, "Older turns of this session were not kept")
        for update in replayed(kept):
            await self.client.update(id, update)

    async def _tell(self, session: JournalSession, what: str) -> None:
        """Tell the user that the agent knows the session from a transcript only."""
        knows = "nothing of it" if not session.transcript else "a transcript of its newest messages"
        why = (
            f"It was kept by acp-conductor. The agent continues in a new session, and gets {knows}."
        )
        await self._notice(session.id, what, why)

    async def _notice(self, id: str, title: str, more: str = "") -> None:
        shows_notices = has_member(self.client_capabilities, ("session", "notices"))
        await self.client.update(id, notice(title, more, as_text=not shows_notices))

    def _opened_new(
        self, params: dict[str, Any], result: Any, like: KeptSession | None = None
    ) -> dict[str, Any]:
        """Start the file of a session that the agent has opened; returns the answer."""
        agent_id, files = result["sessionId"], self._files
        assert files is not None
        known = self._by_agent.get(agent_id)
        if known is not None and known.id in self._restarted:
            self._restarted.discard(known.id)
            return {**result, "sessionId": known.id}  # repeated after a restart of this proxy
        id, cwd = agent_id, str(params.get("cwd") or "")
        directories = params.get("additionalDirectories") or []
        try:
            while id in self._open or not files.create(id, cwd, directories):
                id = f"{agent_id}-{uuid.uuid4().hex[:8]}"  # the agent has counted from one again
        except OSError as exc:
            log.warning("the journal cannot be written", session=id, error=str(exc))
        session = self._add(id, agent_id, result, like)
        if like:
            session.copy(like)
        return {**result, "sessionId": id}

    def _add(
        self, id: str, agent_id: str, result: dict[str, Any], kept: KeptSession | None
    ) -> JournalSession:
        assert self._files is not None
        opened = {name: value for name, value in result.items() if name != "sessionId"}
        title = kept.title if kept else None
        session = JournalSession(id, agent_id, self._files, opened, title)
        self._forget(id)
        if other := self._by_agent.get(agent_id):
            other.is_lost = True  # a restarted agent counts from one again
        self._open[id] = self._by_agent[agent_id] = session
        session.write({"agent_session": agent_id})
        return session

    def _forget(self, id: str) -> None:
        if session := self._open.pop(id, None):
            self._forget_agent_id(session)

    def _forget_agent_id(self, session: JournalSession) -> None:
        """Forget the agent's id of a session that has ended, once no turn of it runs."""
        if self._open.get(session.id) is session or session.running:
            return
        if self._by_agent.get(session.agent_id) is session:
            del self._by_agent[session.agent_id]

    def _with_agent_id(self, params: dict[str, Any]) -> JournalSession | None:
        """The session of a message of the client, which gets the agent's id of it."""
        id = str(params.get("sessionId"))
        session = self._open.get(id)
        if session is not None and session.is_lost:
            message = "journal: the agent was restarted and has lost this session; "
            message += "start a new one, or load it"
            raise RequestError(INTERNAL_ERROR, message, {"sessionId": id})
        if session is not None:
            params["sessionId"] = session.agent_id
        return session

    def _close(self, session: JournalSession) -> None:
        session.flush()
        try:
            session.files.delete_if_empty(session.id)
        except OSError as exc:
            log.warning("the journal cannot be read", session=session.id, error=str(exc))

    def _agent_id(self, id: str, kept: KeptSession | None) -> str:
        session = self._open.get(id)
        return session.agent_id if session else (kept and kept.agent_session) or id

    async def _read(self, id: str) -> KeptSession | None:
        assert self._files is not None
        try:
            return await trio.to_thread.run_sync(self._files.read, id)
        except OSError as exc:
            log.warning("the journal cannot be read", session=id, error=str(exc))
            return None


def _unknown(id: str) -> RequestError:
    return RequestError(RESOURCE_NOT_FOUND, "journal: there is no such session", {"sessionId": id})
