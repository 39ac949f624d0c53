"""`sandbox_guard`: part of an agent's `sandbox`, placed before it by the conductor.

A sandbox holds a process, not what its messages ask others to do. So the agent gets no access to
the files and terminals of the client, which are outside. And a session that the agent could not
work in, because the sandbox does not show its directories, is refused before the agent sees it.

Options:
    directories  absolute paths that the sandbox shows at their own path, or at another (`path_map`)
    help         a sentence for the end of refusals: what to change
"""

from __future__ import annotations

import os
from typing import Any

import attrs

from conductor.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND
from conductor.files import is_below
from conductor.proxy import Forward, Proxy, RequestError, on

__all__ = ["SandboxGuard"]


@attrs.define
class SandboxGuard(Proxy):
    """Refuse what would not work in the agent's sandbox, or lead out of it."""

    required = True

    directories: list[str]
    help: str = ""

    @on("initialize")
    async def initialize(self, params: dict[str, Any], forward: Forward) -> Any:
        capabilities = params.get("clientCapabilities")
        if isinstance(capabilities, dict):
            params["clientCapabilities"] = {
                name: value
                for name, value in capabilities.items()
                if name not in ("fs", "terminal")
            }
        return await forward(params)

    @on("session/new")
    @on("session/load")
    @on("session/resume")
    @on("session/fork")
    async def set_up(self, params: dict[str, Any], forward: Forward) -> Any:
        for path in (params.get("cwd"), *(params.get("additionalDirectories") or ())):
            if isinstance(path, str) and not self._shows(path):
                raise RequestError(INVALID_PARAMS, self._refusal(path))
        return await forward()

    def _shows(self, path: str) -> bool:
        return any(is_below(os.path.normpath(path), each) for each in self.directories)

    def _refusal(self, path: str) -> str:
        shown = ", ".join(self.directories)
        text = f"The sandbox of this agent does not show {path}, but {shown}."
        return f"{text} {self.help}".rstrip()

    @on("fs/read_text_file")
    @on("fs/write_text_file")
    @on("terminal/create")
    @on("terminal/output")
    @on("terminal/kill")
    @on("terminal/release")
    @on("terminal/wait_for_exit")
    async def refuse(self, params: dict[str, Any], forward: Forward) -> Any:
        raise RequestError(
            METHOD_NOT_FOUND,
            "The agent runs in a sandbox, and may not use files and terminals of the client",
        )
