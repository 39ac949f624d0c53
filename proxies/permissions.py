"""`permissions`: answers permission requests of the agent by rules; forwards undecided ones.

The first rule that matches decides. A request often has only a tool call's id, so tool calls are
remembered from the updates that announced them. `/permissions` shows which rule decided.

Options:
    rules     each with an `action` (allow_once, allow_always, deny, ask) and conditions, which must
              all match: `kind`, `about`, `title`, `command`, `argv` with `options`, `path`,
              `mcp_tool`, `session`, `agent`; see `Rule`
    default   the action when no rule matches; default ask. An allowing default allows only what a
              rule without conditions would
    timeout   deny a request that is not answered in time, e.g. 2m; without it, wait
    dry_run   forward every request, and record what the rules would have done
    audit     a file that gets one line of JSON per decision: the request, with titles, commands and
              paths, the rule that decided, and why others did not
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import trio
from attrs.validators import gt, optional

from conductor.log import get_logger
from conductor.proxy import Proxy, RequestError, on, per_session
from conductor.proxy.tool_names import Evidence, ToolTable, tool_table
from proxies._messages import merge_tool_call, opened_session, permission_tool_call, update_of_kind
from proxies._permission_rules import Action, Call, Decision, Rule, choose_option, decide
from proxies._slash_commands import AnnouncedCommands, SlashCommand, SlashCommands, answer

__all__ = ["Permissions"]

_COMMAND = SlashCommand("permissions", "Show which rule decided about which tool call")
_MAX_SHOWN = 20
_MAX_TEXT = 1000

log = get_logger(component="permissions")


@attrs.define
class _Session:
    cwd: str = ""
    servers: list[str] = attrs.field(factory=list)
    """Names of the session's MCP servers."""
    reported: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    """Tool calls from updates."""
    calls: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    """Tool calls from updates and permission requests."""
    decisions: deque[str] = attrs.field(factory=lambda: deque(maxlen=_MAX_SHOWN))
    announced: AnnouncedCommands = attrs.field(factory=AnnouncedCommands)


@attrs.define
class Permissions(Proxy):
    """Answer permission requests by rules."""

    rules: list[Rule]
    default: Action = "ask"
    timeout: timedelta | None = attrs.field(default=None, validator=optional(gt(timedelta())))
    dry_run: bool = False
    audit: Path | None = None
    _version: int = attrs.field(default=1, init=False)
    _agent: str = attrs.field(default="", init=False)
    _commands: SlashCommands = attrs.field(factory=lambda: SlashCommands(_COMMAND), init=False)
    _table: ToolTable = attrs.field(factory=lambda: tool_table(""), init=False)

    sessions = per_session(_Session)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Check at the start that the audit file can be written."""
        self._write("")
        yield

    @on("initialize")
    async def initialize(self, params: dict[str, Any], forward: Any) -> Any:
        result = await forward()
        self._version = result.get("protocolVersion", 1)
        self._agent = str((result.get("agentInfo") or result.get("info") or {}).get("name", ""))
        self._table = tool_table(self._agent)
        return self._commands.initialized(result)

    @on("session/new")
    @on("session/fork")
    async def open_session(self, params: dict[str, Any], forward: Any) -> Any:
        result = await forward()
        return self._opened(self._set_up(opened_session(params, result), params), result)

    @on("session/load")
    @on("session/resume")
    async def reopen_session(self, params: dict[str, Any], forward: Any) -> Any:
        """Prepare the session before the response, as its replay may request permission. If the
        request fails, the earlier state is restored."""
        id = params["sessionId"]
        before = self.sessions.get(id)
        kept = (before.cwd, before.servers) if before is not None else None
        session = self._set_up(id, params)
        try:
            result = await forward()
        except BaseException:
            if kept is not None:
                session.cwd, session.servers = kept
            else:
                self.sessions.pop(id, None)
            raise
        return self._opened(session, result)

    @on("session/update")
    async def remember(self, raw: bytes, forward: Any) -> None:
        kinds = ("tool_call", "tool_call_update", "available_commands_update")
        params = update_of_kind(raw, *kinds)
        update = params["update"] if params else {}
        if params is None or update["sessionUpdate"] != "available_commands_update":
            if params is not None:
                session = self.sessions[params["sessionId"]]
                for known in (session.reported, session.calls):
                    if update["sessionUpdate"] == "tool_call":  # an id may be used again
                        known.pop(str(update.get("toolCallId", "")), None)
                    merge_tool_call(known, update)
            await forward()
        else:
            announced = self.sessions[params["sessionId"]].announced
            await forward({**params, "update": self._commands.announced(update, announced)})

    @on("session/request_permission")
    async def decide(self, params: dict[str, Any], forward: Any) -> Any:
        session = self.sessions[params["sessionId"]]
        asked = permission_tool_call(params)
        known = merge_tool_call(session.calls, asked) if asked else {"title": params.get("title")}
        id = str(asked.get("toolCallId", ""))
        evidence = Evidence(session.reported.get(id, {}), asked, known, params)
        call = Call.of(
            known,
            cwd=session.cwd,
            session=params["sessionId"],
            agent=self._agent,
            table=self._table,
            evidence=evidence,
            declared=session.servers,
        )
        decision = decide(self.rules, self.default, call)
        outcome = None
        if not self.dry_run:
            outcome = choose_option(decision.action, params.get("options") or (), call.about)
        result = {"outcome": outcome} if outcome else await self._ask(params, forward)
        self._record(session, call, decision, id, result)
        return result

    @on("session/prompt")
    async def explain(self, params: dict[str, Any], forward: Any) -> Any:
        session = self.sessions[params["sessionId"]]
        if not self._commands.calls_own(params, session.announced):
            return await forward()
        text = "\n".join(session.decisions) or "No permission was asked for yet."
        return await answer(self.client, params, text, version=self._version)

    def _opened(self, session: _Session, result: Any) -> Any:
        if self._version > 1 and result is not None:
            return self._commands.announced(result, session.announced)
        return result

    def _set_up(self, id: str, params: dict[str, Any]) -> _Session:
        session = self.sessions[id]
        cwd, servers = params.get("cwd"), params.get("mcpServers")
        session.cwd = cwd if isinstance(cwd, str) else ""
        declared = [each for each in servers or () if isinstance(each, dict)]
        session.servers = [each["name"] for each in declared if isinstance(each.get("name"), str)]
        return session

    async def _ask(self, params: dict[str, Any], forward: Any) -> Any:
        if self.timeout is None:
            return await forward()
        with trio.move_on_after(self.timeout.total_seconds()):
            return await forward()
        return {"outcome": choose_option("deny", params.get("options") or ())}

    def _record(
        self, session: _Session, call: Call, decision: Decision, id: str, result: Any
    ) -> None:
        outcome = result.get("outcome", {})
        became = outcome.get("optionId") or outcome.get("outcome", "?")
        would = " (dry run)" if self.dry_run else ""
        title = _one_line(call.title or id)
        line = f"- {title}: {decision.name} → {decision.action}{would}, {became}"
        reasons = [f"  - {_one_line(each)}" for each in decision.reasons]
        session.decisions.append("\n".join([line, *reasons]))
        fields: dict[str, Any] = {"session": call.session, "tool_call": id, "kind": call.kind}
        fields |= {
            "about": " or ".join(call.about),
            "rule": decision.name,
            "action": decision.action,
        }
        fields |= {"outcome": became, "dry_run": self.dry_run}
        log.info("permission decided", **fields)
        line = json.dumps({"time": time.time(), **fields, **_details(call, decision)})
        self._write(line + "\n")

    def _write(self, line: str) -> None:
        """Append to the audit file. If that fails, the request is refused with the reason."""
        if self.audit is None:
            return
        try:
            with open(self.audit, "a", opener=_open_private, encoding="utf-8") as file:
                file.write(line)
        except OSError as exc:
            reason = f"permissions: the audit file {self.audit} cannot be written: {exc.strerror}"
            raise RequestError(-32603, reason) from exc


def _one_line(text: str) -> str:
    """Return a text of the model as one line, so that it cannot imitate another decision."""
    return " ".join(text.split())[:_MAX_TEXT]


def _details(call: Call, decision: Decision) -> dict[str, Any]:
    """Return the audit fields of a call: what rules read, and why rules did not match."""
    paths = [*call.paths.paths, *call.paths.unresolved, *call.paths.unclear]
    return {
        "title": call.title,
        "tool": str(call.tool) if call.tool.sure else None,
        "command": "\n".join(call.commands.texts)[:_MAX_TEXT] or None,
        "paths": [path[:_MAX_TEXT] for path in paths[:_MAX_SHOWN]],
        "not_decided_by": list(decision.reasons),
    }


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
