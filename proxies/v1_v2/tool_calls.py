"""Tool calls, their terminals and permission requests in protocol versions 1 and 2. Pure.

Version 2 has one update that creates or changes a call, where null clears a member and an absent
one leaves it; chunks append content. Version 1 has `tool_call` and `tool_call_update`, where null
and absent leave a member, and content is always replaced: the content of a call is kept until it
ends. A terminal of version 1 belongs to the client, which shows one of the agent as text.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import attrs

from conductor.bounded_dict import BoundedDict
from proxies.shared.client_texts import console_text, exit_text
from proxies.v1_v2.diffs import diff_to_v1, diff_to_v2
from proxies.v1_v2.known_values import (
    PERMISSIONS,
    TOOL_KINDS,
    TOOL_STATUSES,
    convert_block,
    known_block,
)
from proxies.v1_v2.members import Json, each, known, objects, text_block, without

__all__ = ["ToolCallsToV1", "permission_result_to_v1", "permission_to_v2", "tool_call_to_v2"]

_PATCHED: Final = frozenset(
    {"title", "name", "kind", "status", "content", "locations", "rawInput", "rawOutput"}
)
_FINAL: Final = frozenset({"completed", "failed", "cancelled"})
_MAX_CALLS: Final = 10_000
"""Calls of a session that are known; the oldest are forgotten, and created a second time."""
_MAX_KEPT: Final = 50
"""Calls of a session whose content is kept, and terminals; the oldest are forgotten."""
_MAX_CONTENT: Final = 1024 * 1024
"""Characters of the content of a call that are kept; the oldest items are forgotten."""
_MAX_OUTPUT: Final = 16 * 1024
"""Bytes at the end of a terminal's output that are kept and shown."""
_STEP: Final = 1024
"""Bytes of new output after which a terminal is shown again."""


def tool_call_to_v2(call: Json) -> Json:
    """A `tool_call` or `tool_call_update` of version 1 as the update of version 2, also the tool
    call of a permission request (which has no `sessionUpdate`)."""
    changed = {k: v for k, v in call.items() if v is not None or k not in _PATCHED}
    if "sessionUpdate" in changed:
        changed["sessionUpdate"] = "tool_call_update"
    return each(changed, "content", _item_to_v2)


def _item_to_v2(item: Json) -> Json:
    match item.get("type"):
        case "diff":
            return diff_to_v2(item)
        case "content":
            return {**item, "content": convert_block(item.get("content"), 2)}
    return item


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


@attrs.define
class _V2Terminal:
    """A terminal of the agent."""

    command: str = ""
    output: bytes = b""
    is_cut: bool = False
    ending: str = ""
    unshown: int = _STEP
    """Bytes since it was last shown; at first as many as are needed to show it."""

    def append(self, data: Any) -> None:
        """Take output in Base64."""
        try:
            output = base64.b64decode(data) if isinstance(data, str) else b""
        except (binascii.Error, ValueError):
            return
        self.unshown += len(output)
        self.output += output
        if len(self.output) > _MAX_OUTPUT:
            self.is_cut = True
            self.output = self.output[-_MAX_OUTPUT:]

    def text(self) -> str:
        """The output as Markdown."""
        output = self.output.decode(errors="replace")
        return console_text(self.command, output, self.ending, is_cut=self.is_cut)


@attrs.define
class ToolCallsToV1:
    """Converts what an agent of version 2 says about the tool calls of one session."""

    shows_sessions: bool = False
    """Whether the client shows references to the sessions of subagents."""
    _known: BoundedDict[str, None] = attrs.field(
        factory=lambda: BoundedDict(_MAX_CALLS), init=False
    )
    _kept: BoundedDict[str, list[Json]] = attrs.field(
        factory=lambda: BoundedDict(_MAX_KEPT), init=False
    )
    """The content of the calls that have not ended, in version 2."""
    _terminals: BoundedDict[str, _V2Terminal] = attrs.field(
        factory=lambda: BoundedDict(_MAX_KEPT), init=False
    )
    _asked: int = attrs.field(default=0, init=False)

    def update(self, update: Json) -> list[Json]:
        """The update of version 1 for a `tool_call_update`."""
        return [self._converted(update)]

    def chunk(self, update: Json) -> list[Json]:
        """The update with the whole content, for a `tool_call_content_chunk`."""
        id, item = str(update.get("toolCallId")), update.get("content")
        items = self._kept.get(id, [])
        if isinstance(item, dict):
            items = [*items, item]
            self._keep(id, items)
        return [self._with_content(id, items, update.get("_meta"))]

    def terminal_update(self, update: Json) -> list[Json]:
        terminal = self._terminal(update)
        if "command" in update:
            terminal.command = str(update["command"] or "")[:_MAX_OUTPUT]
        if "output" in update:
            terminal.output, terminal.is_cut = b"", False
            output = update["output"]
            terminal.append(output.get("data") if isinstance(output, dict) else None)
        status = update.get("exitStatus")
        if isinstance(status, dict):
            terminal.ending = exit_text(status.get("exitCode"), status.get("signal"))
        return self._showing(update, terminal)

    def terminal_chunk(self, update: Json) -> list[Json]:
        terminal = self._terminal(update)
        terminal.append(update.get("data"))
        return self._showing(update, terminal) if terminal.unshown >= _STEP else []

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

    # ----------------------------------------------------------------------------------------------

    def _converted(self, update: Json) -> Json:
        id = str(update.get("toolCallId"))
        if "content" in update:
            self._keep(id, objects(update["content"]))
        changed = without(update, "capabilities")
        for name in ("content", "locations"):
            if name in changed and changed[name] is None:
                changed[name] = []
        if isinstance(changed.get("content"), list):
            changed["content"] = self._content(objects(changed["content"]))
        if changed.get("kind") is not None:
            changed["kind"] = known(changed["kind"], TOOL_KINDS, "other")
        status = changed.get("status")
        if status is not None:
            other = "failed" if status == "cancelled" else "in_progress"
            changed["status"] = known(status, TOOL_STATUSES, other)
        if changed.get("status") in _FINAL:
            self._kept.pop(id, None)
        is_new = self._is_new(id)
        changed = {k: v for k, v in changed.items() if v is not None or k not in _PATCHED}
        if not is_new or "sessionUpdate" not in update:
            return changed
        changed["sessionUpdate"] = "tool_call"
        changed.setdefault("title", str(changed.get("name") or "Tool call"))
        return changed

    def _keep(self, id: str, items: list[Json]) -> None:
        sizes = [len(str(item)) for item in items]
        first = 0
        while sum(sizes[first:]) > _MAX_CONTENT:
            first += 1
        self._kept[id] = items[first:]

    def _is_new(self, id: str) -> bool:
        if id in self._known:
            return False
        self._known[id] = None
        return True

    def _content(self, items: list[Json]) -> list[Json]:
        return [made for item in items for made in self._item(item)]

    def _item(self, item: Json) -> list[Json]:
        """The items of version 1 that show one of version 2."""
        match item.get("type"):
            case "session" if self.shows_sessions:
                return [item]
            case "content":
                return [{**item, "content": convert_block(item.get("content"), 1)}]
            case "diff":
                return diff_to_v1(item)
            case "terminal":
                terminal = self._terminals.get(str(item.get("terminalId")))
                block = text_block(terminal.text() if terminal else "[a terminal of the agent]")
            case _:
                block = known_block(item)
        return [{"type": "content", "content": block}]

    def _with_content(self, id: str, items: list[Json], meta: Any = None) -> Json:
        update = {"sessionUpdate": "tool_call_update", "toolCallId": id}
        if self._is_new(id):
            update |= {"sessionUpdate": "tool_call", "title": "Tool call"}
        marked = {} if meta is None else {"_meta": meta}
        return {**update, "content": self._content(items), **marked}

    def _terminal(self, update: Json) -> _V2Terminal:
        return self._terminals.setdefault(str(update.get("terminalId")), _V2Terminal())

    def _showing(self, update: Json, terminal: _V2Terminal) -> list[Json]:
        """The updates of the calls that show a terminal."""
        terminal.unshown = 0
        id = update.get("terminalId")
        return [
            self._with_content(call, items)
            for call, items in self._kept.items()
            if any(item.get("terminalId") == id for item in items)
        ]

    def _new_id(self) -> str:
        self._asked += 1
        return f"permission-{self._asked}"


def _option(option: Json) -> Json:
    kind = option.get("kind")
    other = "allow_once" if str(kind).removeprefix("_").startswith("allow") else "reject_once"
    return {**option, "kind": known(kind, PERMISSIONS, other)}
