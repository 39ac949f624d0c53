"""`path_map`: shows directories to the agent at other paths, for an agent in a container.

Paths and `file:` URIs in messages are mapped in both directions: `cwd` and additional directories,
commands of MCP servers, resources in prompts and answers, locations and diffs of tool calls, files
and terminals of the client, open documents, `session/list`. Only members that the protocol defines
as paths or URIs are changed, never texts, the raw input of tools, or arguments.

Options:
    paths  absolute directories, and the absolute paths at which the agent sees them. The innermost
           directory of a path counts. If several have the same path, the client sees the first
"""

from __future__ import annotations

import os
from typing import Any

import attrs

from conductor.directories import directory_spellings
from conductor.proxy import Forward, Placement, Proxy, on
from proxies.shared.paths.members import PARAMS, RESULTS, UPDATES, PathMapping

__all__ = ["PathMap"]


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
