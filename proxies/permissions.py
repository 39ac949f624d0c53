"""`permissions`: answers the agent's permission requests by rules, and asks for the rest.

The first rule that matches decides. A request often names only a tool call's id, so tool calls are
remembered from the updates that announced them. `/permissions` tells which rule decided what.

Options:
    rules     each with an `action` (allow_once, allow_always, deny, ask) and what it is about; all
              of it must match: `kind`, `title`, `command`, `path`, `mcp_tool`, `session`, `agent`;
              see `Rule` for what these mean
    default   the action when no rule matches; default ask
    timeout   deny what nobody answers in time, e.g. 2m; without it, wait
    dry_run   ask for everything, but tell what the rules would have done
    audit     a file that gets one line of JSON per decision, titles included
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import trio
from attrs.validators import gt, optional

from conductor.log import get_logger
from conductor.proxy import Proxy, on, per_session
from proxies._commands import Announced, SlashCommand, SlashCommands, answer
from proxies._rules import Action, Call, Rule, choose_option, first_match
from proxies._shapes import merge_tool_call, opened_session, permission_tool_call, update_of_kind

__all__ = ["Permissions"]

_COMMAND = SlashCommand("permissions", "Show which rule decided about which tool call")
_SHOWN = 20

log = get_logger(component="permissions")


@attrs.define
class _Session:
    cwd: str = ""
    calls: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    decisions: deque[str] = attrs.field(factory=lambda: deque(maxlen=_SHOWN))
    announced: Announced = attrs.field(factory=Announced)


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

    sessions = per_session(_Session)

    @on("initialize")
    async def initialize(self, params: dict[str, Any], forward: Any) -> Any:
        result = await forward()
        self._version = result.get("protocolVersion", 1)
        self._agent = (result.get("agentInfo") or result.get("info") or {}).get("name", "")
        return self._commands.initialized(result)

    @on("session/new")
    @on("session/load")
    @on("session/resume")
    @on("session/fork")
    async def open_session(self, params: dict[str, Any], forward: Any) -> Any:
        if "sessionId" in params:  # the updates of what is loaded come before the answer
            self.sessions[params["sessionId"]].cwd = params.get("cwd", "")
        result = await forward()
        session = self.sessions[opened_session(params, result)]
        session.cwd = params.get("cwd", "")
        if self._version > 1 and result is not None:
            return self._commands.announced(result, session.announced)
        return result

    @on("session/update")
    async def remember(self, raw: bytes, forward: Any) -> None:
        kinds = ("tool_call", "tool_call_update", "available_commands_update")
        params = update_of_kind(raw, *kinds)
        update = params["update"] if params else {}
        if params is None or update["sessionUpdate"] != "available_commands_update":
            if params is not None:
                merge_tool_call(self.sessions[params["sessionId"]].calls, update)
            await forward()
        else:
            announced = self.sessions[params["sessionId"]].announced
            await forward({**params, "update": self._commands.announced(update, announced)})

    @on("session/request_permission")
    async def decide(self, params: dict[str, Any], forward: Any) -> Any:
        session = self.sessions[params["sessionId"]]
        told = permission_tool_call(params)
        known = merge_tool_call(session.calls, told) if told else {"title": params.get("title")}
        call = Call.of(known, cwd=session.cwd, session=params["sessionId"], agent=self._agent)
        found = first_match(self.rules, call)
        number, action = (found[0], found[1].action) if found else (None, self.default)
        rule = (found[1].name if found else None) or (f"rule {number}" if number else "default")
        outcome = None if self.dry_run else choose_option(action, params.get("options") or ())
        result = {"outcome": outcome} if outcome else await self._ask(params, forward)
        self._tell(session, call, rule, action, str(told.get("toolCallId", "")), result)
        return result

    @on("session/prompt")
    async def explain(self, params: dict[str, Any], forward: Any) -> Any:
        session = self.sessions[params["sessionId"]]
        if not self._commands.calls_own(params, session.announced):
            return await forward()
        text = "\n".join(session.decisions) or "No permission was asked for yet."
        return await answer(self.client, params, text, version=self._version)

    async def _ask(self, params: dict[str, Any], forward: Any) -> Any:
        if self.timeout is None:
            return await forward()
        with trio.move_on_after(self.timeout.total_seconds()):
            return await forward()
        return {"outcome": choose_option("deny", params.get("options") or ())}

    def _tell(
        self, session: _Session, call: Call, rule: str, action: Action, id: str, result: Any
    ) -> None:
        outcome = result.get("outcome", {})
        became = outcome.get("optionId") or outcome.get("outcome", "?")
        would = " (dry run)" if self.dry_run else ""
        session.decisions.append(f"- {call.title or id}: {rule} → {action}{would}, {became}")
        fields: dict[str, Any] = {"session": call.session, "tool_call": id, "kind": call.kind}
        fields |= {"rule": rule, "action": action, "outcome": became, "dry_run": self.dry_run}
        log.info("permission decided", **fields)
        if self.audit is not None:
            line = json.dumps({"time": time.time(), **fields, "title": call.title})
            with open(self.audit, "a", opener=_private, encoding="utf-8") as file:
                file.write(line + "\n")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
