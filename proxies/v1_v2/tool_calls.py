"""Tool calls and permission requests in protocol versions 1 and 2. Pure.

Version 2 has one update that creates or changes a call, where null clears a member and an absent
one leaves it; chunks append content. Version 1 has `tool_call` and `tool_call_update`, where null
and absent leave a member, and content is always replaced.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from conductor.bounded_dict import BoundedDict
from proxies.v1_v2.content import tool_content_to_v1, tool_content_to_v2
from proxies.v1_v2.kept_content import KeptContent
from proxies.v1_v2.members import Json, each, key_of, known, objects, text_block, without
from proxies.v1_v2.terminals import Terminals

__all__ = ["ToolCallsToV1", "permission_result_to_v1", "permission_to_v2", "tool_call_to_v2"]

_PATCHED: Final = frozenset(
    {"title", "name", "kind", "status", "content", "locations", "rawInput", "rawOutput"}
)
_KINDS: Final = frozenset(
    {"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode"}
)
"""Without `other`, which stands for all others."""
_STATUSES: Final = frozenset({"pending", "in_progress", "completed", "failed"})
_FINAL: Final = frozenset({"completed", "failed", "cancelled"})
_OPTION_KINDS: Final = frozenset({"allow_once", "allow_always", "reject_once", "reject_always"})
_MAX_CALLS: Final = 10_000
"""Calls of a session that are known; the oldest are forgotten, and created a second time."""


def tool_call_to_v2(call: Json) -> Json:
    """A `tool_call` or `tool_call_update` of version 1 as the update of version 2, also the tool
    call of a permission request (which has no `sessionUpdate`)."""
    changed = {k: v for k, v in call.items() if v is not None or k not in _PATCHED}
    if "sessionUpdate" in changed:
        changed["sessionUpdate"] = "tool_call_update"
    return each(changed, "content", tool_content_to_v2)


def permission_to_v2(params: Json, title: str | None) -> Json:
    """The params of `session/request_permission`; `title` is that of the call as told before."""
    call = params.get("toolCall")
    call = tool_call_to_v2(call) if isinstance(call, dict) else {}
    asked = call.get("title") or title or call.get("name") or "Allow this tool call?"
    subject = {"type": "tool_call", "toolCall": call}
    return {**without(params, "toolCall"), "title": asked, "subject": subject}


def permission_result_to_v1(result: Json) -> Json:
    """The result of `session/request_permission`, for an agent of version 1."""
    outcome = result.get("outcome")
    if isinstance(outcome, dict) and outcome.get("outcome") in ("selected", "cancelled"):
        return result
    return {**result, "outcome": {"outcome": "cancelled"}}


@attrs.define(eq=False)
class ToolCallsToV1:
    """Converts what an agent of version 2 says about the tool calls of one session."""

    kept: KeptContent = attrs.field(factory=KeptContent)
    """Content of version 2 of the calls of all sessions that have not ended."""
    shows_sessions: bool = False
    """Whether the client shows references to the sessions of subagents."""
    terminals: Terminals = attrs.field(factory=Terminals, init=False)
    _known: BoundedDict[str, None] = attrs.field(
        factory=lambda: BoundedDict(_MAX_CALLS), init=False
    )
    _asked: int = attrs.field(default=0, init=False)

    def update(self, update: Json) -> list[Json]:
        """The update of version 1 for a `tool_call_update`."""
        return [self._converted(update)]

    def chunk(self, update: Json) -> list[Json]:
        """The update with the whole content, for a `tool_call_content_chunk`."""
        id, item = str(update.get("toolCallId")), update.get("content")
        items = self.kept.items(self, id)
        if isinstance(item, dict):
            items.append(item)
            self.kept.append(self, id, item)
        return [self._with_content(id, items, update.get("_meta"))]

    def terminal_update(self, update: Json) -> list[Json]:
        if not self.terminals.update(update):
            return []
        return self._showing(update)

    def terminal_chunk(self, update: Json) -> list[Json]:
        return self._showing(update) if self.terminals.chunk(update) else []

    def permission(self, params: Json) -> Json:
        """The params of `session/request_permission` for a client of version 1.

        A request without a subject, or about something else, is shown as a call.
        """
        subject = params.get("subject")
        subject = subject if isinstance(subject, dict) else {}
        title, description = params.get("title"), params.get("description")
        call = subject.get("toolCall")
        if subject.get("type") == "tool_call" and isinstance(call, dict):
            shown = without(self._converted(call), "sessionUpdate")
        elif subject.get("type") == "command":
            raw = {name: subject[name] for name in ("command", "cwd") if name in subject}
            id = subject.get("toolCallId") or self._new_id()
            shown = {"toolCallId": id, "kind": "execute", "status": "pending", "rawInput": raw}
            title = f"{title}: {subject.get('command')}"
        else:
            shown = {"toolCallId": self._new_id(), "kind": "other", "status": "pending"}
        if title and not shown.get("title"):
            shown["title"] = title
        elif title and title != shown["title"]:
            description = f"{title}\n\n{description}" if description else title
        if description:
            item = {"type": "content", "content": text_block(str(description))}
            shown["content"] = [item, *objects(shown.get("content"))]
        options = each({"options": params.get("options")}, "options", _option)
        rest = without(params, "title", "description", "subject", "options")
        return {**rest, "toolCall": shown, **options}

    def forget(self) -> None:
        """Drop the content of calls: the turn has ended."""
        for call in self.kept.calls(self):
            self.kept.drop(self, call)

    # ----------------------------------------------------------------------------------------------

    def _converted(self, update: Json) -> Json:
        id = str(update.get("toolCallId"))
        if "content" in update:
            self.kept.replace(self, id, objects(update["content"]))
        changed = without(update, "capabilities")
        for name in _PATCHED & changed.keys():
            if changed[name] is None:
                changed[name] = [] if name in ("content", "locations") else None
        if isinstance(changed.get("content"), list):
            changed["content"] = self._content(objects(changed["content"]))
        if changed.get("kind") is not None:
            changed["kind"] = known(changed["kind"], _KINDS, "other")
        status = changed.get("status")
        if status is not None:
            other = "failed" if status == "cancelled" else "in_progress"
            changed["status"] = known(status, _STATUSES, other)
        if changed.get("status") in _FINAL:
            self.kept.drop(self, id)
        is_new = self._is_new(id)
        changed = {k: v for k, v in changed.items() if v is not None or k not in _PATCHED}
        if not is_new or "sessionUpdate" not in update:
            return changed
        changed["sessionUpdate"] = "tool_call"
        changed.setdefault("title", str(changed.get("name") or "Tool call"))
        return changed

    def _is_new(self, id: str) -> bool:
        key = key_of(id)
        if key in self._known:
            return False
        self._known[key] = None
        return True

    def _content(self, items: list[Json]) -> list[Json]:
        return [
            made
            for item in items
            for made in tool_content_to_v1(
                item, self.terminals.text, shows_sessions=self.shows_sessions
            )
        ]

    def _with_content(self, id: str, items: list[Json], meta: Any = None) -> Json:
        update = {"sessionUpdate": "tool_call_update", "toolCallId": id}
        if self._is_new(id):
            update |= {"sessionUpdate": "tool_call", "title": "Tool call"}
        marked = {} if meta is None else {"_meta": meta}
        return {**update, "content": self._content(items), **marked}

    def _showing(self, update: Json) -> list[Json]:
        """The updates of the calls that show a terminal."""
        terminal = update.get("terminalId")
        shown = [(call, self.kept.items(self, call)) for call in self.kept.calls(self)]
        return [
            self._with_content(call, items)
            for call, items in shown
            if any(item.get("terminalId") == terminal for item in items)
        ]

    def _new_id(self) -> str:
        self._asked += 1
        return f"permission-{self._asked}"


def _option(option: Json) -> Json:
    kind = option.get("kind")
    other = "allow_once" if str(kind).removeprefix("_").startswith("allow") else "reject_once"
    return {**option, "kind": known(kind, _OPTION_KINDS, other)}
