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
from conductor.proxy import (
    Forward,
    PermissionQuestion,
    Proxy,
    RequestError,
    Session,
    on_permission,
    on_update,
    per_session,
    slash,
)
from conductor.proxy.tool_names import Evidence, tool_table
from proxies._messages import merge_tool_call, permission_tool_call
from proxies._permission_rules import Action, Call, Decision, Rule, choose_option, decide

__all__ = ["Permissions"]

_MAX_SHOWN = 20
_MAX_TEXT = 1000

log = get_logger(component="permissions")


@attrs.define
class _Calls:
    """The unfinished tool calls of a session, and the last decisions."""

    reported: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    """Tool calls from updates."""
    merged: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    """Tool calls from updates and permission requests."""
    decisions: deque[str] = attrs.field(factory=lambda: deque(maxlen=_MAX_SHOWN))


@attrs.define
class Permissions(Proxy):
    """Answer permission requests by rules."""

    rules: list[Rule]
    default: Action = "ask"
    timeout: timedelta | None = attrs.field(default=None, validator=optional(gt(timedelta())))
    dry_run: bool = False
    audit: Path | None = None

    calls = per_session(_Calls)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Check at the start that the audit file can be written."""
        self._write("")
        yield

    @on_update("tool_call", "tool_call_update")
    async def remember(self, session: Session, update: dict[str, Any], forward: Forward) -> None:
        calls = self.calls[session.id]
        for known in (calls.reported, calls.merged):
            if update["sessionUpdate"] == "tool_call":  # an id may be used again
                known.pop(str(update.get("toolCallId", "")), None)
            merge_tool_call(known, update)
        await forward()

    @on_permission
    async def decide(self, session: Session, asked: PermissionQuestion, forward: Forward) -> Any:
        calls, params = self.calls[session.id], asked.params
        told = permission_tool_call(params)
        known = merge_tool_call(calls.merged, told) if told else {"title": params.get("title")}
        id = str(told.get("toolCallId", ""))
        agent = str(session.agent_info.get("name", ""))
        servers = [each["name"] for each in session.mcp_servers if type(each.get("name")) is str]
        call = Call.of(
            known,
            cwd=session.cwd,
            session=session.id,
            agent=agent,
            table=tool_table(agent),
            evidence=Evidence(calls.reported.get(id, {}), told, known, params),
            declared=servers,
        )
        decision = decide(self.rules, self.default, call)
        outcome = None
        if not self.dry_run:
            outcome = choose_option(decision.action, asked.options, call.about)
        result = {"outcome": outcome} if outcome else await self._ask(asked, forward)
        self._record(call, decision, id, result)
        return result

    @slash("permissions", "Show which rule decided about which tool call")
    async def explain(self, session: Session, arguments: str) -> str:
        return "\n".join(self.calls[session.id].decisions) or "No permission was asked for yet."

    async def _ask(self, asked: PermissionQuestion, forward: Forward) -> Any:
        if self.timeout is None:
            return await forward()
        with trio.move_on_after(self.timeout.total_seconds()):
            return await forward()
        return {"outcome": choose_option("deny", asked.options)}

    def _record(self, call: Call, decision: Decision, id: str, result: Any) -> None:
        outcome = result.get("outcome", {})
        became = outcome.get("optionId") or outcome.get("outcome", "?")
        would = " (dry run)" if self.dry_run else ""
        title = _one_line(call.title or id)
        line = f"- {title}: {decision.name} → {decision.action}{would}, {became}"
        reasons = [f"  - {_one_line(each)}" for each in decision.reasons]
        self.calls[call.session].decisions.append("\n".join([line, *reasons]))
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
