"""`path_map`: shows directories to the agent at other paths, for an agent in a container.

Paths and `file:` URIs in messages are mapped in both directions: `cwd` and additional directories,
commands of MCP servers, resources in prompts and answers, locations and diffs of tool calls, files
and terminals of the client, open documents, `session/list`. Only members that the protocol defines
as paths or URIs are changed, never texts, the raw input and output of tools, patches, arguments or
`_meta`.

Options:
    paths  absolute directories, and the absolute paths at which the agent sees them. The innermost
           directory of a path counts. If several have the same path, the client sees the first
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote, unquote, urlsplit

import attrs

from conductor.directories import directory_spellings
from conductor.files import is_below
from conductor.proxy import Forward, Placement, Proxy, on

__all__ = ["PathMap"]

Members: TypeAlias = "Mapping[str, Members | Literal['path', 'uri']]"
"""Members of an object, or of each object of a list, that have a path; in both versions."""

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


def _absolute(_: Any, field: Any, paths: dict[str, str]) -> None:
    for outside, inside in paths.items():
        if not os.path.isabs(os.path.expanduser(outside)):
            raise ValueError(f"`{outside}` is not an absolute path")
        if not os.path.isabs(inside):
            raise ValueError(
                f"`{inside}` is not an absolute path: the agent's home directory is unknown here"
                if inside.startswith("~")
                else f"`{inside}` is not an absolute path"
            )


@attrs.define
class PathMap(Proxy):
    """Show directories to the agent at other paths."""

    required = True

    paths: dict[str, str] = attrs.field(validator=_absolute)
    _to_agent: PathMapping = attrs.field(init=False)
    _to_client: PathMapping = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        pairs = [
            (os.path.normpath(os.path.expanduser(outside)), os.path.normpath(inside))
            for outside, inside in self.paths.items()
        ]
        real = {directory_spellings(outside)[-1]: inside for outside, inside in pairs}
        self._to_agent = PathMapping({**real, **dict(pairs)})
        self._to_client = PathMapping({inside: outside for outside, inside in reversed(pairs)})

    def placement(self) -> Placement:
        return Placement(effects={"maps_paths"})

    @on("session/new")
    @on("session/load")
    @on("session/resume")
    @on("session/fork")
    @on("session/options")
    async def set_up(self, params: dict[str, Any], forward: Forward) -> Any:
        self._respell(params)
        self._to_agent.apply(PARAMS["session/new"], params)
        result = await forward(params)
        self._to_client.apply(RESULTS["session/new"], result)
        return result

    @on("session/prompt")
    async def prompt(self, params: dict[str, Any], forward: Forward) -> Any:
        if self._to_agent.apply(PARAMS["session/prompt"], params):
            return await forward(params)
        return await forward()

    @on("session/list")
    async def sessions(self, params: dict[str, Any], forward: Forward) -> Any:
        self._respell(params)
        self._to_agent.apply(PARAMS["session/list"], params)
        result = await forward(params)
        self._to_client.apply(RESULTS["session/list"], result)
        return result

    @on("document/didOpen")
    @on("document/didChange")
    @on("document/didClose")
    @on("document/didSave")
    @on("document/didFocus")
    async def document(self, params: dict[str, Any], forward: Forward) -> None:
        self._to_agent.apply(PARAMS["document/didOpen"], params)
        await forward(params)

    @on("nes/start")
    async def start_suggestions(self, params: dict[str, Any], forward: Forward) -> Any:
        self._to_agent.apply(PARAMS["nes/start"], params)
        return await forward(params)

    @on("nes/suggest")
    async def suggest(self, params: dict[str, Any], forward: Forward) -> Any:
        self._to_agent.apply(PARAMS["nes/suggest"], params)
        result = await forward(params)
        self._to_client.apply(RESULTS["nes/suggest"], result)
        return result

    @on("session/update")
    async def update(self, params: dict[str, Any], forward: Forward) -> None:
        update = params.get("update")
        kind = update.get("sessionUpdate") if isinstance(update, dict) else None
        members = UPDATES.get(kind) if isinstance(kind, str) else None
        if members is not None and self._to_client.apply(members, update):
            await forward(params)
        else:
            await forward()

    @on("session/request_permission")
    async def permission(self, params: dict[str, Any], forward: Forward) -> Any:
        self._to_client.apply(PARAMS["session/request_permission"], params)
        return await forward(params)

    @on("fs/read_text_file")
    @on("fs/write_text_file")
    async def file(self, params: dict[str, Any], forward: Forward) -> Any:
        self._to_client.apply(PARAMS["fs/read_text_file"], params)
        return await forward(params)

    @on("terminal/create")
    async def terminal(self, params: dict[str, Any], forward: Forward) -> Any:
        self._to_client.apply(PARAMS["terminal/create"], params)
        return await forward(params)

    def _respell(self, params: dict[str, Any]) -> None:
        """Follow the links in the directories of a session, if they lead into a mapped one."""
        if isinstance(cwd := params.get("cwd"), str):
            params["cwd"] = self._mapped_spelling(cwd)
        if isinstance(listed := params.get("additionalDirectories"), list):
            params["additionalDirectories"] = [
                self._mapped_spelling(each) if isinstance(each, str) else each for each in listed
            ]

    def _mapped_spelling(self, path: str) -> str:
        spellings = (path, *directory_spellings(path))
        return next((each for each in spellings if self._to_agent.covers(each)), path)


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
        return path.startswith("/") and any(_is_below(path, each) for each in self.directories)

    def path(self, path: Any) -> Any:
        """The mapped path; other values, and paths elsewhere, are returned as they are."""
        if not isinstance(path, str) or not path.startswith("/"):
            return path
        around = [each for each in self.directories if _is_below(path, each)]
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


def _is_below(path: str, directory: str) -> bool:
    """`..` is resolved, links are not."""
    return is_below(os.path.normpath(path), directory)
