"""`permissions`: answers permission requests of the agent by rules; forwards undecided ones.

The first rule that matches decides. A request often has only a tool call's id, so tool calls are
remembered from the updates that announced them. The chat says which rule has denied a call;
`/permissions` shows which rule decided.

Options:
    rules     each with an `action` (allow_once, allow_always, deny, ask) and conditions, which must
              all match: `kind`, `about`, `title`, `command`, `argv` with `options`, `path`,
              `mcp_tool`, `session`, `agent`; see `Rule`. Without rules, `default` decides
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
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import attrs
import trio
from attrs.validators import gt, optional

from conductor.error_codes import INTERNAL_ERROR
from conductor.files import open_output
from conductor.proxy import (
    Forward,
    PermissionQuestion,
    Placement,
    Proxy,
    RequestError,
    Session,
    get_logger,
    on_permission,
    per_session,
    slash,
)
from conductor.proxy.agent_questions import agent_questions
from conductor.proxy.tool_names import tool_table
from proxies.permissions.rules import Action, Decision, Rule, decide
from proxies.shared.tool_calls.call import Call

__all__ = ["Permissions"]

_MAX_SHOWN = 20
_MAX_TEXT = 1000
_EXPIRED: Final[Mapping[str, Any]] = MappingProxyType({})
"""Stands for the answer of a user who has not answered."""

log = get_logger(component="permissions")


@attrs.define
class Permissions(Proxy):
    """Answer permission requests by rules."""

    rules: list[Rule] = attrs.field(factory=list)
    default: Action = "ask"
    timeout: timedelta | None = attrs.field(default=None, validator=optional(gt(timedelta())))
    dry_run: bool = False
    audit: Path | None = None

    decisions = per_session(lambda: deque[str](maxlen=_MAX_SHOWN))
    told = per_session(lambda: deque[tuple[str, str]](maxlen=_MAX_SHOWN))
    """Denials that the chat shows: id of the call, and the text."""

    def option_warnings(self) -> Sequence[tuple[str, str]]:
        if self.rules or self.default != "ask" or self.timeout or self.audit:
            return ()
        return [("rules", "without rules nothing is decided: the user is asked everything")]

    def placement(self) -> Placement:
        return Placement(
            before={
                "opens_agents": "no rule applies to the agents that it opens",
                "maps_paths": "rules are given the agent's paths, not those of this machine",
            }
        )

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Check at the start that the audit file can be written."""
        self._write("")
        yield

    @on_permission
    async def decide(self, session: Session, asked: PermissionQuestion, forward: Forward) -> Any:
        known = asked.tool_call
        id = "" if known is None else known.id
        above = session.ancestors
        call = Call.of(
            {"title": asked.params.get("title"), **({} if known is None else known.members)},
            cwd=session.user_session.cwd,
            runs_in=[each.cwd for each in (session, *above) if each.cwd],
            session=session.id,
            above=[each.id for each in above],
            is_placed=session.is_placed,
            agent=session.agent_name,
            table=tool_table(session.agent_name),
            evidence=asked.evidence,
            declared=session.mcp_server_names,
        )
        decision = decide(self.rules, self.default, call, asked.options)
        user, title = session.user_session, _one_line(call.title or id or "A request")
        if self.dry_run or decision.action == "ask":
            result = await self._ask(asked, forward)
        elif decision.option is not None:
            result = asked.choose(decision.option)
        else:
            result = asked.deny()
        if decision.action == "deny" and not self.dry_run:
            await self._tell(user, id, f"denied by {decision.rule_text}: {title}")
        if result is _EXPIRED:
            result = asked.deny()
            await self._tell(user, id, f"denied, no answer within {self.timeout}: {title}")
        try:
            self._record(user.id, call, decision, id, result)
        except RequestError as exc:
            await self._tell(user, id, f"denied, {exc.message}: {title}")
            raise
        return result

    @slash("permissions", "Show which rule decided about which tool call")
    async def explain(self, session: Session, arguments: str) -> str:
        lines = list(self.decisions[session.id]) or ["No permission was asked for yet."]
        known = agent_questions(session.agent_name)
        if known is not None and (text := known.text()):
            lines += ["", f"{text}. Rules do not see such calls."]
            if help := known.help():
                lines[-1] += f" Change that: {help}."
        return "\n".join(lines)

    async def _ask(self, asked: PermissionQuestion, forward: Forward) -> Any:
        if self.timeout is None:
            return await forward()
        with trio.move_on_after(self.timeout.total_seconds()):
            return await forward()
        return _EXPIRED

    async def _tell(self, user: Session, id: str, text: str) -> None:
        """Say in the chat who has denied a call, once per call: agents say that the user has."""
        if not id or (id, text) not in self.told[user.id]:
            self.told[user.id].append((id, text))
            await user.notice(text, severity="warning")

    def _record(
        self, user_session: str, call: Call, decision: Decision, id: str, result: Any
    ) -> None:
        outcome = result.get("outcome", {})
        became = outcome.get("optionId") or outcome.get("outcome", "?")
        would = " (dry run)" if self.dry_run else ""
        title = _one_line(call.title or id)
        line = f"- {title}: {decision.name} → {decision.action}{would}, {became}"
        reasons = [f"  - {_one_line(each)}" for each in decision.reasons]
        self.decisions[user_session].append("\n".join([line, *reasons]))
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
            with os.fdopen(open_output(self.audit), "a", encoding="utf-8") as file:
                file.write(line)
        except OSError as exc:
            reason = f"permissions: the audit file {self.audit} cannot be written: {exc.strerror}"
            raise RequestError(INTERNAL_ERROR, reason) from exc


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
