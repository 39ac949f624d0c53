"""`context`: adds texts, files and command output before the user's prompt.

Not all agents read AGENTS.md, and none knows the current `git status`. This adds a text, files of
the session's directory, and the output of a command; `/context` shows them to the user
(`/acp:context` if the agent has a command of that name).

    <context source="AGENTS.md">
    Use tabs.
    </context>

The added parts are removed from prompts that the agent replays or echoes, in chunks of any size. A
part is recognised by its first line and ends at its closing tag; content that contains this tag
gets another one (`context-2`), so content cannot end its own part early.

Options:
    text       a text
    files      paths and globs (`**` crosses directories), looked for in the session's directory,
               then above it, up to the root of the project; the nearest match counts. `check`,
               `/context` and the log (once in a session) report those that match no file
    command    an argv, run in the session's directory without a shell; its output is added
    timeout    of the command; default 3s
    every      0 (default): on a session's first prompt only; 1: on every prompt; N: every Nth.
               A slash command of the agent is not counted and stays as it is: `/compact` first,
               and the texts come with the next prompt
    max_bytes  of all parts together; default 65536; a note says where a part was cut off

Without `text`, `files` and `command`, it adds AGENTS.md.

The prompts of a loaded session are counted in its replay; a session that is resumed without a
replay, or forked, is past its first prompt. The prompt, and later messages of the client, wait for
the command.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import attrs
import trio
from attrs.validators import ge, gt

from conductor.json_values import decode_loosely
from conductor.proxy import (
    Forward,
    Placement,
    Prompt,
    Proxy,
    Session,
    SessionSetup,
    get_logger,
    on,
    on_prompt,
    on_session,
    on_session_setup,
    on_update,
    per_session,
    slash,
    text_filter,
)
from conductor.proxy.commands import program_warning, run_command
from conductor.proxy.peers import SESSION_STATE_UPDATES
from conductor.proxy.slash_commands import is_slash_command
from proxies.context.files import missing, read_files
from proxies.shared.first_prompt import has_user_text

__all__ = ["PromptContext", "UserText", "part", "without_parts"]

_USER: Final = ("user_message", "user_message_chunk")
_TAG: Final = "context"
_FIRST_LINE: Final = re.compile(rf'<({_TAG}(?:-\d+)?) source="[^"\n]*">\n')

log = get_logger(component="context")


@attrs.define
class _HistoryPrompts:
    """Counts the prompts in a session's history, without slash commands."""

    prompts: int = 0
    in_prompt: bool = False
    in_command: bool = False

    def see(self, update: dict[str, Any]) -> None:
        kind = update.get("sessionUpdate")
        if kind in SESSION_STATE_UPDATES:
            return
        if kind in _USER and not self.in_prompt:
            content = update.get("content")
            self.in_command = is_slash_command(content if isinstance(content, list) else [content])
            self.prompts += not self.in_command
        self.in_prompt = kind in _USER
        if not self.in_command:
            self.prompts = max(self.prompts, 1)  # an agent may replay only its own messages


@attrs.define
class _SentContext:
    prompts: int = 0
    """Prompts that the session has had."""
    shown: str = ""
    """The parts that were added last."""
    replay: _HistoryPrompts | None = None
    """Set while the session is loaded."""
    logged_missing: bool = False
    """Whether patterns that match no file were logged."""


@attrs.define
class UserText:
    """Removes context parts from the start of a user message that arrives in chunks."""

    longest: int
    """Maximum characters held back while a part is not complete."""
    held: str = attrs.field(default="", init=False)
    _begun: bool = attrs.field(default=False, init=False)
    """Whether the user's own text has begun."""
    _after_part: bool = attrs.field(default=False, init=False)

    def feed(self, text: str) -> str:
        """Return the text that can be shown now; empty while a part is not complete."""
        if self._begun:
            return text
        whole = self.held + text
        if self._after_part and not self.held:
            whole = whole.lstrip("\n")
        shown = without_parts(whole)
        if shown is None and len(whole) > self.longest:
            shown = whole
        self.held = whole if shown is None else ""
        self._begun, self._after_part = bool(shown), self._after_part or shown == ""
        return shown or ""

    def end(self) -> str:
        """Return the held-back text at the end of the message: it was not a part."""
        shown, self.held, self._begun, self._after_part = self.held, "", False, False
        return shown


@attrs.define
class PromptContext(Proxy):
    """Put texts, files and the output of a command before prompts."""

    text: str = ""
    files: list[str] = attrs.field(factory=list)
    command: list[str] = attrs.field(factory=list)
    timeout: timedelta = attrs.field(default=timedelta(seconds=3), validator=gt(timedelta()))
    every: int = attrs.field(default=0, validator=ge(0))
    max_bytes: int = attrs.field(default=65536, validator=gt(0))
    _replays: int = attrs.field(default=0, init=False)
    """Number of sessions that are being loaded."""

    states = per_session(_SentContext)

    def __attrs_post_init__(self) -> None:
        if not (self.text or self.files or self.command):
            self.files = ["AGENTS.md"]

    def option_warnings(self) -> Sequence[tuple[str, str]]:
        where = os.getcwd()
        why = program_warning(self.command)
        commands = [] if why is None else [("command", why)]
        return commands + [
            ("files", f"`{name}` {why}; a session looks from its own directory")
            for name, why in missing(self.files, where)
        ]

    def placement(self) -> Placement:
        return Placement(effects={"adds_text"})

    async def on_restart(self, sessions: Sequence[str]) -> None:
        for id in sessions:
            self.states[id].prompts = 1

    @on_session_setup
    async def reopen(self, setup: SessionSetup, forward: Forward) -> Any:
        """Count the prompts of a session that is loaded or resumed."""
        id = setup.session_id
        if id is None or setup.opened_by == "fork":
            return await forward()
        replays = setup.opened_by == "load" or setup.params.get("replayFrom") is not None
        known, state = id in self.states, self.states[id]
        state.replay = replay = _HistoryPrompts()
        self._replays += 1
        try:
            result = await forward()
        finally:
            state.replay = None
            self._replays -= 1
        # Without a replay, the number of prompts is unknown, and most likely not zero.
        state.prompts = max(state.prompts, replay.prompts if replays or known else 1)
        return result

    @on_session
    async def opened(self, session: Session) -> None:
        state = self.states[session.id]
        if session.forked_from is not None:
            origin = self.states.get(session.forked_from)
            state.prompts = origin.prompts if origin is not None else 1

    @on("session/update")
    async def count(self, raw: bytes, forward: Forward) -> None:
        """Count the prompts of a replay."""
        if self._replays:
            params = decode_loosely(raw)
            replay = self.states[params["sessionId"]].replay
            if replay is not None:
                replay.see(params["update"])
        await forward()

    @text_filter("user")
    def user_text(self, session: Session) -> UserText:
        return UserText(4 * self.max_bytes)

    @on_update("user_message")
    async def user_message(
        self, session: Session, update: dict[str, Any], forward: Forward
    ) -> None:
        if has_user_text(update, _without_complete_parts):
            await forward()

    @on_prompt
    async def add_context(self, session: Session, prompt: Prompt, forward: Forward) -> Any:
        state = self.states[session.id]
        if (state.prompts and not self.every) or prompt.is_command:
            return await forward()
        number, state.prompts = state.prompts, state.prompts + 1
        if self.every and number % self.every:
            return await forward()
        state.shown = await self.collect(session.cwd)
        await self._log_missing(state, session.cwd)
        if not state.shown:
            return await forward()
        prompt.prepend(state.shown)
        is_taken = False
        try:
            result = await forward()
            is_taken = not prompt.answered_by_proxy
        finally:
            if not is_taken:  # it failed, as without a login: the agent may not know it
                state.prompts -= 1
        return result

    @slash("context", "Show what was added to your prompts")
    async def report(self, session: Session, arguments: str) -> str:
        lines = [self.states[session.id].shown or "Nothing was added to your prompts yet."]
        lines += [f"`{name}` {why}." for name, why in await self._missing(session.cwd)]
        return "\n".join(lines)

    # ----------------------------------------------------------------------------------------------

    async def collect(self, cwd: str) -> str:
        """Return all parts, each with its source, within `max_bytes`."""
        parts = [("text", self.text.encode())] if self.text else []
        if self.files:
            parts += await trio.to_thread.run_sync(read_files, self.files, cwd, self.max_bytes)
        if self.command:
            # Without the arguments, which may hold secrets: the user sees the added parts.
            parts.append((self.command[0], await self._output(cwd)))
        room, shown = self.max_bytes, []
        for source, content in parts:
            if content.strip():
                shown.append(part(source, content, room))
                room = max(0, room - len(content))
        return "\n".join(shown)

    async def _missing(self, cwd: str) -> list[tuple[str, str]]:
        if not self.files:
            return []
        return await trio.to_thread.run_sync(missing, self.files, cwd)

    async def _log_missing(self, state: _SentContext, cwd: str) -> None:
        if not state.logged_missing:
            state.logged_missing = True
            for name, why in await self._missing(cwd):
                log.warning("context file not found", file=name, reason=why)

    async def _output(self, cwd: str) -> bytes:
        done = await run_command(
            self.command,
            seconds=self.timeout.total_seconds(),
            cwd=cwd or None,
            limit=self.max_bytes + 1,
        )
        if done.problem:
            return f"({done.problem})".encode()
        return done.stdout if done.status == 0 else f"(exit status {done.status})".encode()


def _without_complete_parts(text: str) -> str:
    """The user's text; all of it if a part is not complete."""
    left = without_parts(text)
    return text if left is None else left


def part(source: str, content: bytes, room: int) -> str:
    """Return a part with as much of the content as fits into `room` bytes."""
    note = "\n(cut off here: too large)" if len(content) > room else ""
    body = content[:room].decode(errors="replace" if not note else "ignore").strip("\n")
    tags = itertools.chain([_TAG], (f"{_TAG}-{number}" for number in itertools.count(2)))
    tag = next(tag for tag in tags if f"</{tag}>" not in body)
    name = source.replace('"', "'").replace("\n", " ")
    return f'<{tag} source="{name}">\n{body}{note}\n</{tag}>'


def without_parts(text: str) -> str | None:
    """Return the text after the parts at its start; `None` if a part is not complete."""
    while found := _FIRST_LINE.match(text):
        closing = f"\n</{found[1]}>"
        end = text.find(closing, found.end() - 1)
        if end < 0:
            return None
        text = text[end + len(closing) :].lstrip("\n")
    begun = text.startswith(f"<{_TAG}") and "\n" not in text
    return None if begun or (text and f"<{_TAG}".startswith(text)) else text
