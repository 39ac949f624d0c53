"""Members of ACP messages that are paths or `file:` URIs, and a mapping of them. Pure.

The tables name the members of both protocol versions. A table applies to an object, or to each
object of a list. Texts, `rawInput` and `rawOutput` of tool calls, patches, arguments of commands
and `_meta` have no members with a defined meaning, and stay as they are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote, unquote, urlsplit

import attrs

from conductor.files import is_below

__all__ = ["PARAMS", "RESULTS", "UPDATES", "PathMapping", "below"]

Members: TypeAlias = "Mapping[str, Members | Literal['path', 'uri']]"

_BLOCK: Final[Members] = {"uri": "uri", "resource": {"uri": "uri"}}
_MESSAGE: Final[Members] = {"content": _BLOCK}
_FILES: Final[Members] = {"path": "path", "oldPath": "path"}
_TOOL_CONTENT: Final[Members] = {**_FILES, "changes": _FILES, "content": _BLOCK}
_TOOL_CALL: Final[Members] = {"locations": {"path": "path"}, "content": _TOOL_CONTENT}
_DIRECTORIES: Final[Members] = {"cwd": "path", "additionalDirectories": "path"}
_COMMANDS: Final[Members] = {"availableCommands": {"path": "path"}}
_SET_UP: Final[Members] = {
    **_DIRECTORIES,
    "mcpServers": {"command": "path"},
    "systemPrompt": _MESSAGE,
}
_DOCUMENT: Final[Members] = {"uri": "uri"}
_SUGGESTION_CONTEXT: Final[Members] = {
    "recentFiles": _DOCUMENT,
    "relatedSnippets": _DOCUMENT,
    "editHistory": _DOCUMENT,
    "userActions": _DOCUMENT,
    "openFiles": _DOCUMENT,
    "diagnostics": _DOCUMENT,
}

PARAMS: Final[Mapping[str, Members]] = {
    "session/new": _SET_UP,
    "session/load": _SET_UP,
    "session/resume": _SET_UP,
    "session/fork": _SET_UP,
    "session/list": {"cwd": "path"},
    "session/options": _DIRECTORIES,
    "session/prompt": {"prompt": _BLOCK},
    "session/request_permission": {
        "toolCall": _TOOL_CALL,
        "subject": {"cwd": "path", "toolCall": _TOOL_CALL},
    },
    "fs/read_text_file": {"path": "path"},
    "fs/write_text_file": {"path": "path"},
    "terminal/create": {"command": "path", "cwd": "path"},
    "document/didOpen": _DOCUMENT,
    "document/didChange": _DOCUMENT,
    "document/didClose": _DOCUMENT,
    "document/didSave": _DOCUMENT,
    "document/didFocus": _DOCUMENT,
    "nes/start": {"workspaceUri": "uri", "workspaceFolders": _DOCUMENT},
    "nes/suggest": {**_DOCUMENT, "context": _SUGGESTION_CONTEXT},
}
"""Members of params by method; those of `session/update` are in `UPDATES`."""
RESULTS: Final[Mapping[str, Members]] = {
    "session/list": {"sessions": _DIRECTORIES},
    "session/options": _COMMANDS,
    "session/new": _COMMANDS,
    "session/resume": _COMMANDS,
    "session/fork": _COMMANDS,
    "nes/suggest": {"suggestions": _DOCUMENT},
}
UPDATES: Final[Mapping[str, Members]] = {
    "user_message": _MESSAGE,
    "user_message_chunk": _MESSAGE,
    "agent_message": _MESSAGE,
    "agent_message_chunk": _MESSAGE,
    "agent_thought": _MESSAGE,
    "agent_thought_chunk": _MESSAGE,
    "tool_call": _TOOL_CALL,
    "tool_call_update": _TOOL_CALL,
    "tool_call_content_chunk": {"content": _TOOL_CONTENT},
    "plan_update": {"plan": {**_DOCUMENT, "path": "path"}},
    "available_commands_update": _COMMANDS,
    "prompt_suggestions_update": {"suggestions": {"prompt": _BLOCK}},
    "terminal_update": {"cwd": "path"},
    "subagent_update": _DIRECTORIES,
    "session_message": _MESSAGE,
    "session_message_chunk": _MESSAGE,
    "compaction_update": {"summary": _BLOCK},
    "compaction_summary_chunk": _MESSAGE,
}
"""Members of the `update` of `session/update`, by kind."""


def below(path: str, directory: str) -> bool:
    """Whether an absolute path is this directory, or in it; `..` is resolved, links are not."""
    return is_below(os.path.normpath(path), directory)


@attrs.frozen
class PathMapping:
    """Maps paths below some directories to other directories; the innermost directory counts."""

    directories: Mapping[str, str]
    """Target by source; both absolute and normalized."""

    def apply(self, members: Members, value: Any) -> bool:
        """Map members in place; returns whether any changed."""
        if isinstance(value, list):
            results = [self.apply(members, item) for item in value]
            return any(results)
        if not isinstance(value, dict):
            return False
        changed = False
        for name in members.keys() & value.keys():
            kind, old = members[name], value[name]
            if isinstance(kind, Mapping):
                changed |= self.apply(kind, old)
                continue
            function = self.path if kind == "path" else self.uri
            new = [function(each) for each in old] if isinstance(old, list) else function(old)
            changed |= new != old
            value[name] = new
        return changed

    def covers(self, path: str) -> bool:
        """Whether a path is mapped."""
        return path.startswith("/") and any(below(path, each) for each in self.directories)

    def path(self, path: Any) -> Any:
        """The mapped path; other values, and paths elsewhere, are returned as they are."""
        if not isinstance(path, str) or not path.startswith("/"):
            return path
        around = [each for each in self.directories if below(path, each)]
        if not around:
            return path
        nearest = max(around, key=len)
        resolved = os.path.normpath(path) if ".." in path.split("/") else path
        target = self.directories[nearest].rstrip("/") + resolved[len(nearest.rstrip("/")) :]
        return target or "/"

    def uri(self, uri: Any) -> Any:
        """The mapped `file:` URI; other values are returned as they are."""
        if not isinstance(uri, str) or uri[:5].lower() != "file:":
            return uri
        try:
            parts = urlsplit(uri)
        except ValueError:
            return uri
        old = unquote(parts.path)
        new = self.path(old)
        if parts.netloc not in ("", "localhost") or new == old:
            return uri
        return parts._replace(path=quote(new)).geturl()
