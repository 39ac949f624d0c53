"""`local_terminals`: runs commands for an agent if the client has no terminals.

An agent may ask its client to run commands (`terminal/create`) if the client announces terminals.
This proxy announces them to the agent of a client without, and runs the commands on this machine,
with the rights and the environment of the conductor: they are not limited to the directories of the
session, in which they start. A command ends with its terminal, its session and the chain, with all
that it has started. Of an agent that cannot close sessions, a closed one is cancelled. Where the
agent puts a terminal into a tool call, the client gets a text.

For agents of version 1; version 2 has no terminals of the client. With a client of version 2 it
stands behind `v1_v2`.

Options:
    ask            whether the user is asked before each command; default false: the agent asks, or
                   does not, as with any client
    max_terminals  the highest number of terminals that are not released; default 16
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import attrs
import trio
from attrs.validators import gt

from conductor.error_codes import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND
from conductor.proxy import (
    Forward,
    Placement,
    Proxy,
    RequestError,
    Session,
    get_logger,
    on,
    on_session_end,
    on_update,
)
from proxies.local_terminals.terminal import (
    LocalTerminal,
    OutputTail,
    TerminalContent,
    argv_of,
    shown_command,
)
from proxies.shared.capabilities import (
    SESSION,
    announce,
    has_capability,
    with_capability,
)
from proxies.shared.questions import ask_first
from proxies.shared.session_files import resolved_inside, session_directories

__all__ = ["LocalTerminals"]

_NAME: Final = "local_terminals"
_MAX_OUTPUT: Final = 1024 * 1024
"""Bytes of output that are kept, also if the agent asks for more."""
_ids: Iterator[int] = itertools.count(1)

log: Final = get_logger(component=_NAME)


@attrs.define
class LocalTerminals(Proxy):
    """Run commands for an agent if the client has no terminals."""

    versions = (1,)

    ask: bool = False
    max_terminals: int = attrs.field(default=16, validator=gt(0))
    _is_needed: bool = attrs.field(default=False, init=False)
    _closes: bool = attrs.field(default=False, init=False)
    """Whether it closes sessions for an agent that cannot."""
    _terminals: dict[str, LocalTerminal] = attrs.field(factory=dict, init=False)
    """Unreleased terminals, by id."""
    _content: TerminalContent = attrs.field(factory=TerminalContent, init=False)

    def placement(self) -> Placement:
        return Placement(effects={"serves_client"})

    @on("initialize")
    async def announce(self, request: dict[str, Any], forward: Forward) -> Any:
        self._is_needed = announce(request, True, "terminal")
        result = await forward()
        if self._is_needed and not has_capability(result, SESSION, "close"):
            self._closes = True
            return with_capability(result, SESSION, "close", {})
        return result

    @on("terminal/create")
    async def create(self, params: dict[str, Any], forward: Forward) -> Any:
        if not self._is_needed:
            return await forward()
        session = self.session_by_id(_text(params, "sessionId"))
        command, args, variables = _text(params, "command"), _args(params), _variables(params)
        cwd = await trio.to_thread.run_sync(partial(_directory, params.get("cwd"), session))
        limit = _limit(params)
        shown = shown_command(command, args)
        if self.ask:
            given: dict[str, Any] = {"command": command, "args": args, "cwd": cwd}
            if variables:  # they decide what is executed: `PATH`, `LD_PRELOAD`, `GIT_PAGER`
                given["env"] = variables
            call = {"title": shown, "kind": "execute", "rawInput": given}
            await ask_first(self, _NAME, session, call, f"the user refuses to run `{shown}`")
        if len(self._terminals) >= self.max_terminals:
            text = f"{_NAME}: {self.max_terminals} terminals are open; release one first"
            raise RequestError(INTERNAL_ERROR, text)
        id = f"conductor-terminal-{next(_ids)}"
        terminal = self._terminals[id] = LocalTerminal(session.id, shown, OutputTail(limit))
        env = {**os.environ, **variables}
        self.start_soon(self._run, id, terminal, argv_of(command, args), cwd, env)
        await terminal.started.wait()
        if terminal.problem is not None:
            self._terminals.pop(id, None)
            raise RequestError(INTERNAL_ERROR, f"{_NAME}: `{shown}`: {terminal.problem}")
        log.info("command started", session=session.id, terminal=id, cwd=cwd)
        return {"terminalId": id}

    @on("terminal/output")
    async def output(self, params: dict[str, Any], forward: Forward) -> Any:
        if not self._is_needed:
            return await forward()
        _, terminal = self._terminal(params)
        is_ended = terminal.ended.is_set()
        text, is_cut = terminal.output.text(is_ended=is_ended)
        result: dict[str, Any] = {"output": text, "truncated": is_cut}
        if is_ended:
            result["exitStatus"] = terminal.exit_status()
        return result

    @on("terminal/wait_for_exit")
    async def wait_for_exit(self, params: dict[str, Any], forward: Forward) -> Any:
        if not self._is_needed:
            return await forward()
        _, terminal = self._terminal(params)
        self.release_lane()
        await terminal.ended.wait()
        return terminal.exit_status()

    @on("terminal/kill")
    async def kill(self, params: dict[str, Any], forward: Forward) -> Any:
        if not self._is_needed:
            return await forward()
        _, terminal = self._terminal(params)
        self.release_lane()
        await terminal.terminate()
        return {}

    @on("terminal/release")
    async def release(self, params: dict[str, Any], forward: Forward) -> Any:
        if not self._is_needed:
            return await forward()
        id, terminal = self._terminal(params)
        del self._terminals[id]
        terminal.abandon()
        self.release_lane()
        await terminal.ended.wait()
        return {}

    @on("session/close")
    async def close(self, params: dict[str, Any], forward: Forward) -> Any:
        if not self._closes:
            return await forward()
        session = self.session_by_id(_text(params, "sessionId"))
        await self.agent.notify("session/cancel", {"sessionId": session.id})
        await self.session_ended(session)
        return {}

    @on_session_end
    async def session_ended(self, session: Session) -> None:
        for id, terminal in list(self._terminals.items()):
            owner = self.session_by_id(terminal.session)
            if session.id in (owner.id, *(each.id for each in owner.ancestors)):
                del self._terminals[id]
                terminal.abandon()

    @on_update("tool_call", "tool_call_update")
    async def show(self, session: Session, update: dict[str, Any], forward: Forward) -> None:
        if self._is_needed:
            self._content.convert(session.id, update)
        await forward()

    @on("session/request_permission")
    async def show_in_question(self, params: dict[str, Any], forward: Forward) -> Any:
        call = params.get("toolCall")
        if self._is_needed and isinstance(call, dict):
            self._content.convert(str(params.get("sessionId")), call)
        return await forward()

    # ----------------------------------------------------------------------------------------------

    async def _run(
        self, id: str, terminal: LocalTerminal, argv: list[str], cwd: str, env: Mapping[str, str]
    ) -> None:
        self._content.add(id, terminal)
        await terminal.run(argv, cwd, env)
        for session, update in self._content.ended(id):
            await self.client.update(session, update)

    def _terminal(self, params: Mapping[str, Any]) -> tuple[str, LocalTerminal]:
        id = _text(params, "terminalId")
        terminal = self._terminals.get(id)
        if terminal is None or terminal.session != params.get("sessionId"):
            raise RequestError(RESOURCE_NOT_FOUND, f"{_NAME}: the session has no terminal `{id}`")
        return id, terminal


def _directory(cwd: Any, session: Session) -> str:
    """The directory that a command starts in."""
    directories = session_directories(session)
    if cwd is None and directories:
        cwd = directories[0]
    if not isinstance(cwd, str):
        raise RequestError(INVALID_PARAMS, f"{_NAME}: the session has no directory")
    try:
        return resolved_inside(cwd, directories)[1]
    except RequestError as exc:
        raise RequestError(exc.code, f"{_NAME}: {exc.message}") from None


def _text(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str) or not value:
        raise RequestError(INVALID_PARAMS, f"{_NAME}: `{name}` is not a text")
    return value


def _args(params: Mapping[str, Any]) -> list[str]:
    args = params.get("args") or []
    if not isinstance(args, list) or not all(isinstance(each, str) for each in args):
        raise RequestError(INVALID_PARAMS, f"{_NAME}: `args` is not a list of texts")
    return args


def _variables(params: Mapping[str, Any]) -> dict[str, str]:
    """The variables of the request, beside those of the conductor's environment."""
    try:
        given = {each["name"]: each["value"] for each in params.get("env") or []}
        if not all(isinstance(each, str) for each in (*given, *given.values())):
            raise TypeError
    except (TypeError, KeyError):
        text = f"{_NAME}: `env` is not a list of variables"
        raise RequestError(INVALID_PARAMS, text) from None
    return given


def _limit(params: Mapping[str, Any]) -> int:
    limit = params.get("outputByteLimit")
    if limit is None:
        return _MAX_OUTPUT
    if type(limit) is not int or limit < 0:
        raise RequestError(INVALID_PARAMS, f"{_NAME}: `outputByteLimit` is not a number of bytes")
    return min(limit, _MAX_OUTPUT)
