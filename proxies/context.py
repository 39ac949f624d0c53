"""`context`: puts what the agent should know before the user's prompt.

Agents do not all read AGENTS.md, and none knows what `git status` says right now. What is put in is
text, files of the session's directory, and the output of a command; the user asks `/context` to see
it.

Options:
    text       a text
    files      paths and globs, relative to the session's directory (`**` crosses directories)
    command    an argv, run in the session's directory without a shell; its output is put in
    timeout    of the command; default 3s
    every      0 (default): on a session's first prompt only; 1: on every prompt; N: every Nth
    max_bytes  of all of it together; default 65536; what is over it is cut off, and says so

The prompt waits for the command, and so does what the client sends after it.
"""

from __future__ import annotations

import glob
import os
from datetime import timedelta
from typing import Any

import attrs
import trio
from attrs.validators import ge, gt

from conductor.proxy import Proxy, on, per_session
from proxies._commands import SlashCommand, answer
from proxies._process import run
from proxies._shapes import opened_session, update_of_kind

__all__ = ["Context"]

_COMMAND = SlashCommand("context", "Show what was added to your prompts")


@attrs.define
class _Session:
    cwd: str = ""
    prompts: int = 0
    shown: str = ""
    """What was put in last."""


@attrs.define
class Context(Proxy):
    """Put texts, files and the output of a command before prompts."""

    text: str = ""
    files: list[str] = attrs.field(factory=list)
    command: list[str] = attrs.field(factory=list)
    timeout: timedelta = attrs.field(default=timedelta(seconds=3), validator=gt(timedelta()))
    every: int = attrs.field(default=0, validator=ge(0))
    max_bytes: int = attrs.field(default=65536, validator=gt(0))
    _version: int = attrs.field(default=1, init=False)

    sessions = per_session(_Session)

    def __attrs_post_init__(self) -> None:
        if not (self.text or self.files or self.command):
            raise ValueError("there is nothing to add: give `text`, `files` or `command`")

    @on("initialize")
    async def initialize(self, params: dict[str, Any], forward: Any) -> Any:
        result = await forward()
        self._version = result.get("protocolVersion", 1)
        return result

    @on("session/new")
    @on("session/load")
    @on("session/resume")
    @on("session/fork")
    async def open_session(self, params: dict[str, Any], forward: Any) -> Any:
        result = await forward()
        self.sessions[opened_session(params, result)].cwd = params.get("cwd", "")
        if self._version > 1 and result is not None:
            return _COMMAND.advertise(result)
        return result

    @on("session/update")
    async def advertise(self, raw: bytes, forward: Any) -> None:
        params = update_of_kind(raw, "available_commands_update")
        await forward(params and {**params, "update": _COMMAND.advertise(params["update"])})

    @on("session/prompt")
    async def add_context(self, params: dict[str, Any], forward: Any) -> Any:
        session = self.sessions[params["sessionId"]]
        if _COMMAND.called_in(params):
            shown = session.shown or "Nothing was added to your prompts yet."
            return await answer(self.client, params, shown, version=self._version)
        number, session.prompts = session.prompts, session.prompts + 1
        if number % self.every if self.every else number:
            return await forward()
        session.shown = await self.collect(session.cwd)
        if not session.shown:
            return await forward()
        block = {"type": "text", "text": session.shown}
        return await forward({**params, "prompt": [block, *params["prompt"]]})

    async def collect(self, cwd: str) -> str:
        """Everything that is put in, each part with its source, within the size allowed."""
        parts = [("text", self.text.encode())] if self.text else []
        parts += await trio.to_thread.run_sync(_read, self.files, cwd, self.max_bytes)
        if self.command:
            # Arguments may hold secrets, and the user sees what is put in.
            parts.append((self.command[0], await self._output(cwd)))
        room, shown = self.max_bytes, []
        for source, content in parts:
            if content.strip():
                shown.append(_part(source, content, room))
                room = max(0, room - len(content))
        return "\n".join(shown)

    async def _output(self, cwd: str) -> bytes:
        done = await run(
            self.command,
            seconds=self.timeout.total_seconds(),
            cwd=cwd or None,
            limit=self.max_bytes + 1,
        )
        if done.problem:
            return f"({done.problem})".encode()
        return done.stdout if done.status == 0 else f"(exit status {done.status})".encode()


def _read(patterns: list[str], cwd: str, limit: int) -> list[tuple[str, bytes]]:
    """The files that the patterns match, each once, in the patterns' order."""
    if not cwd:
        return []
    names = dict.fromkeys(
        name
        for pattern in patterns
        for name in sorted(glob.glob(pattern, root_dir=cwd, recursive=True))
    )
    found = []
    for name in names:
        path = os.path.join(cwd, name)
        if os.path.isfile(path):
            try:
                with open(path, "rb") as file:
                    found.append((name, file.read(limit + 1)))
            except OSError as exc:
                found.append((name, f"(cannot be read: {exc.strerror})".encode()))
    return found


def _part(source: str, content: bytes, room: int) -> str:
    note = "\n(cut off here: too large)" if len(content) > room else ""
    body = content[:room].decode(errors="replace" if not note else "ignore").strip("\n")
    return f'<context source="{source}">\n{body}{note}\n</context>'
