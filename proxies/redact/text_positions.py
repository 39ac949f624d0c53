"""Strings in messages that are not text: identifiers, enumerations, MIME types, base64. Pure.

All other strings are text: free JSON such as `rawInput`, `_meta` and error data, members unknown to
the schema, and member names. If two names of an object change to the same text, one of the two
members is lost.

A table describes an object of the schema: it maps a member's name (or `ANY`) to what its value is:

- a table, or a `ByDiscriminator` that chooses one by a member; for a list, it applies to each item;
- `KEEP`: a string that is not text. A list or an object in its place is cleaned like free JSON;
- `LIST`: a list of such strings;
- `TERMINAL`: text in base64.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

import attrs

__all__ = ["ANSWER", "REQUEST", "TextCleaner"]


@attrs.frozen(eq=False)
class _LeafKind:
    name: str


@attrs.frozen(eq=False)
class ByDiscriminator:
    """An object with a table that depends on one of its members."""

    member: str
    tables: Mapping[str, Table]

    def table(self, value: Mapping[str, Any]) -> Table:
        kind = value.get(self.member)
        found = self.tables.get(kind) if isinstance(kind, str) else None
        return {self.member: KEEP} if found is None else found


KEEP: Final = _LeafKind("keep")
LIST: Final = _LeafKind("list")
"""A list of strings that are kept."""
TERMINAL: Final = _LeafKind("terminal")
"""Base64-encoded text."""
ANY: Final = "*"
"""Table key for members of any name; the names are kept."""

Table: TypeAlias = "Mapping[str, Table | ByDiscriminator | _LeafKind]"
_FREE: Final[Table] = {}


def _keep(*names: str, **more: Table | ByDiscriminator | _LeafKind) -> Table:
    return {**dict.fromkeys(names, KEEP), **more}


_EVENTS: Final = _keep(document=_keep(didChange=_keep("syncKind")))
_CAPABILITIES: Final = _keep("positionEncoding", nes=_keep(events=_EVENTS))
_BINARY: Final = _keep("type", "data", "mimeType", annotations=_keep(audience=LIST))
_BLOCK: Final = ByDiscriminator(
    "type",
    {
        "text": _keep("type", annotations=_keep(audience=LIST)),
        "image": _BINARY,
        "audio": _BINARY,
        "resource_link": _keep(
            "type",
            "mimeType",
            annotations=_keep(audience=LIST),
            icons=_keep("mimeType", "theme"),
        ),
        "resource": _keep(
            "type", annotations=_keep(audience=LIST), resource=_keep("mimeType", "blob")
        ),
    },
)
_TOOL_CONTENT: Final = ByDiscriminator(
    "type",
    {
        "content": _keep("type", content=_BLOCK),
        "diff": _keep(
            "type",
            changes=_keep("operation", "fileType", "mimeType"),
            patch=_keep("format"),
        ),
        "terminal": _keep("type", "terminalId"),
        "session": _keep("type", "sessionId"),
    },
)
_TOOL_CALL: Final = _keep("toolCallId", "kind", "status", content=_TOOL_CONTENT)
_ENTRIES: Final = _keep("priority", "status")
_COMMANDS: Final = _keep("type", input=_keep("type"))
_VALUES: Final = _keep("value", "group", "groupId", options=_keep("value"))
_OPTIONS: Final = _keep("id", "configId", "type", "category", "currentValue", options=_VALUES)
_STATE: Final[Table] = _keep(
    "state",
    "stopReason",
    background=_keep("type", "sessionId", "terminalId", "toolCallId"),
    error=_keep("code", data=_keep("sessionId")),
)
_MESSAGE: Final = _keep("messageId", content=_BLOCK)
_BETWEEN_SESSIONS: Final = _keep(
    *("messageId", "senderSessionId", "recipientSessionId"),
    *("senderMessageId", "recipientMessageId"),
    content=_BLOCK,
)
_UPDATES: Final[Mapping[str, Table]] = {
    "user_message": _MESSAGE,
    "user_message_chunk": _MESSAGE,
    "agent_message": _MESSAGE,
    "agent_message_chunk": _MESSAGE,
    "agent_thought": _MESSAGE,
    "agent_thought_chunk": _MESSAGE,
    "session_message": _BETWEEN_SESSIONS,
    "session_message_chunk": _BETWEEN_SESSIONS,
    "tool_call": _TOOL_CALL,
    "tool_call_update": _TOOL_CALL,
    "tool_call_content_chunk": _TOOL_CALL,
    "plan": _keep(entries=_ENTRIES),
    "plan_update": _keep("planId", plan=_keep("type", "planId", entries=_ENTRIES)),
    "plan_removed": _keep("planId"),
    "available_commands_update": _keep(availableCommands=_COMMANDS),
    "current_mode_update": _keep("currentModeId"),
    "config_option_update": _keep(configOptions=_OPTIONS),
    "state_update": _STATE,
    "terminal_update": _keep("terminalId", output=_keep(data=TERMINAL)),
    "terminal_output_chunk": _keep("terminalId", data=TERMINAL),
    "compaction_update": _keep("compactionId", "status", summary=_BLOCK),
    "compaction_summary_chunk": _keep("compactionId", content=_BLOCK),
    "subagent_update": _keep("sessionId", "toolCallId", "status", state=_STATE),
    "notice": _keep("severity"),
    "cursor_update": _keep(
        "cursorId", anchor=_keep("type", "messageId", "toolCallId", "compactionId", "position")
    ),
    "prompt_suggestions_update": _keep(suggestions=_keep(prompt=_BLOCK)),
}
_UPDATE: Final = ByDiscriminator(
    "sessionUpdate", {kind: {"sessionUpdate": KEEP, **table} for kind, table in _UPDATES.items()}
)
_FIELD: Final = _keep(
    *("type", "format", "pattern"),
    enum=LIST,
    oneOf=_keep("const"),
    items=_keep("type", enum=LIST, anyOf=_keep("const"), oneOf=_keep("const")),
)
_FORM: Final = _keep("type", required=LIST, properties={ANY: _FIELD})

REQUEST: Final = _keep(
    *("sessionId", "messageId", "elicitationId", "toolCallId", "mode", "state", "requestId"),
    *("idempotencyKey",),
    update=_UPDATE,
    prompt=_BLOCK,
    systemPrompt=_keep("mode", content=_BLOCK),
    toolCall=_TOOL_CALL,
    subject=_keep("type", "terminalId", "toolCallId", toolCall=_TOOL_CALL),
    options=_keep("optionId", "kind"),
    requestedSchema=_FORM,
)
"""Params of requests and notifications of any method."""

ANSWER: Final = _keep(
    *("sessionId", "messageId", "terminalId", "stopReason", "status", "nextCursor", "action"),
    outcome=_keep("outcome", "optionId"),
    content={ANY: _FREE},
    modes=_keep("currentModeId", availableModes=_keep("id")),
    models=_keep("currentModelId", availableModels=_keep("modelId")),
    configOptions=_OPTIONS,
    availableCommands=_COMMANDS,
    sessions=_keep("sessionId"),
    authMethods=_keep("id", "methodId", "type", env=_keep("value")),
    providers=_keep("id", "providerId", supported=LIST, current=_keep("apiType")),
    agentCapabilities=_CAPABILITIES,
    capabilities=_CAPABILITIES,
    state=_STATE,
)
"""Results of any method."""


@attrs.frozen(eq=False)
class TextCleaner:
    """Applies `change` to the texts in a JSON value."""

    change: Callable[[str], str]
    _name: Callable[[str], str] = attrs.field(init=False)
    """`change` for member names, cached, as most names repeat."""

    @_name.default
    def _cached(self) -> Callable[[str], str]:
        return lru_cache(1000)(self.change)

    def clean(self, value: Any, table: Table | ByDiscriminator | _LeafKind) -> Any:
        """Return the value with its texts changed; the value itself if none was."""
        original, whole, changed = value, [value], False
        # Without recursion: peers choose how deep JSON is nested.
        waiting: list[tuple[Any, Table | ByDiscriminator | _LeafKind, Any, Any]] = [
            (value, table, whole, 0)
        ]
        while waiting:
            value, at, holder, place = waiting.pop()
            if isinstance(value, str):
                new = self._text(value, at)
                changed = changed or new is not value
                holder[place] = new
            elif isinstance(value, list):
                holder[place] = copy = list(value)
                if isinstance(at, _LeafKind):
                    at = KEEP if at is LIST else _FREE
                waiting += [(item, at, copy, n) for n, item in enumerate(value)][::-1]
            elif isinstance(value, dict):
                members = _table(at, value)
                holder[place] = renamed = {}
                inside = []
                for name, item in value.items():
                    below = members.get(name)
                    if below is None and (below := members.get(ANY)) is None:
                        below, new = _FREE, self._name(name)
                        changed, name = changed or new != name, new
                    renamed[name] = item
                    if isinstance(item, str | list | dict):
                        inside.append((item, below, renamed, name))
                waiting += inside[::-1]
        return whole[0] if changed else original

    def _text(self, text: str, at: Table | ByDiscriminator | _LeafKind) -> str:
        if at is KEEP:
            return text
        if at is TERMINAL:
            try:
                shown = base64.b64decode(text).decode("latin-1")  # a character per byte
            except ValueError:
                return self.change(text)
            new = self.change(shown)
            encoded = base64.b64encode(new.encode("latin-1", "replace")).decode()
            return text if new == shown else encoded
        new = self.change(text)
        return text if new == text else new


def _table(at: Table | ByDiscriminator | _LeafKind, value: Mapping[str, Any]) -> Table:
    if isinstance(at, ByDiscriminator):
        return at.table(value)
    return _FREE if isinstance(at, _LeafKind) else at
