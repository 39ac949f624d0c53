"""`checkpoint`: snapshots of the project's files before the agent changes them, and `/rewind`.

A snapshot is taken before the first tool call of a turn that may change files: of any kind but
read, search, think, fetch and switch_mode. `/rewind` lists the snapshots; `/rewind 3` restores the
files of number 3 and deletes those created since, after a snapshot of the present state. Git is
needed, as a program; the project need not be a repository, and if it is one, it is not touched.

Options:
    before          the first changing `tool` of a turn (default), or every `turn`: an agent that
                    neither asks for permission nor uses the client's files may run a tool while
                    the snapshot is taken
    keep            number of snapshots per directory; default 50
    max_file_bytes  larger files are left out; default 10,000,000
    timeout         time for a snapshot; without it in time the turn goes on; default 1m
    directory       where the snapshots are; default: `checkpoints` in the user's state directory
                    (`~/.local/state/acp-conductor` on Linux)
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import textwrap
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

import attrs
import trio
from attrs.validators import ge, gt

from conductor.directories import same_directory
from conductor.errors import details_are_withheld
from conductor.proxy import (
    AgentToolCall,
    Forward,
    PermissionQuestion,
    Placement,
    Prompt,
    Proxy,
    Session,
    TurnEnd,
    get_logger,
    on,
    on_permission,
    on_prompt,
    on_turn_end,
    on_update,
    per_session,
    slash,
)
from proxies.checkpoint.shadow_git import CheckpointError, ShadowGit, Snapshot

__all__ = ["Checkpoint"]

log = get_logger(component="checkpoint")

_HARMLESS: Final = frozenset({"read", "search", "think", "fetch", "switch_mode"})


@attrs.define
class _TurnCheckpoint:
    words: str = ""
    """First words of the prompt."""
    done: bool = False
    """Whether this turn has its checkpoint, or has failed to take one."""


@attrs.define
class Checkpoint(Proxy):
    """Take snapshots of the project's files, and restore them with `/rewind`."""

    before: Literal["tool", "turn"] = "tool"
    keep: int = attrs.field(default=50, validator=ge(2))
    max_file_bytes: int = attrs.field(default=10_000_000, validator=gt(0))
    timeout: timedelta = attrs.field(default=timedelta(minutes=1), validator=gt(timedelta()))
    directory: Path | None = None
    _lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    turns = per_session(_TurnCheckpoint)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        if shutil.which("git") is None:
            raise FileNotFoundError("checkpoint needs git: install it, or remove the proxy")
        yield

    def placement(self) -> Placement:
        return Placement(
            after={"serves_client": "a write through it may come before the checkpoint"},
            before={"opens_agents": "there is no checkpoint before the agents that it opens write"},
        )

    @on_prompt
    async def prompt(self, session: Session, prompt: Prompt, forward: Forward) -> Any:
        if not session.is_running:
            turn = self.turns[session.id]
            turn.words, turn.done = _first_words(prompt.text), False
            if self.before == "turn":
                await self._take(session)
        return await forward()

    @on_turn_end
    async def turn_ended(self, session: Session, end: TurnEnd) -> None:
        self.turns[session.id].done = False

    @on_update("tool_call", "tool_call_update")
    async def tool_updated(
        self, session: Session, update: dict[str, Any], forward: Forward
    ) -> None:
        """At the announcement, which may come before the start: the tool may run right after it."""
        call = session.tool_calls.get(str(update.get("toolCallId", "")))
        if call is not None:
            await self._before_tool(session, call)
        await forward()

    @on_permission
    async def permission(
        self, session: Session, asked: PermissionQuestion, forward: Forward
    ) -> Any:
        if asked.tool_call is not None:
            await self._before_tool(session, asked.tool_call)
        return await forward()

    @on("fs/write_text_file", "terminal/create")
    async def changed_by_client(self, params: dict[str, Any], forward: Forward) -> Any:
        await self._take(self.session_by_id(params["sessionId"]))
        return await forward()

    @slash("rewind", "List the checkpoints of the files, or restore one: [NUMBER]")
    async def rewind(self, session: Session, arguments: str) -> str:
        if arguments and re.fullmatch("[0-9]{1,9}", arguments) is None:
            return "Write /rewind or /rewind NUMBER."
        if arguments and session.is_running:
            return "A turn is running: cancel it, or wait for its end."
        try:
            git = self._git(session)
            async with self._lock:
                return await (self._restore(git, int(arguments)) if arguments else self._list(git))
        except (CheckpointError, OSError) as exc:
            return f"Not possible: {_reason(exc)}"

    # ----------------------------------------------------------------------------------------------

    async def _before_tool(self, session: Session, call: AgentToolCall) -> None:
        if call.kind not in _HARMLESS:
            await self._take(session)

    async def _take(self, session: Session) -> None:
        """Take the checkpoint of the turn, unless it has one."""
        async with self._lock:
            turn = self.turns[session.user_session.id]
            if turn.done:
                return
            turn.done = True
            try:
                with trio.fail_after(self.timeout.total_seconds()):
                    taken = await self._git(session).take(turn.words)
            except (CheckpointError, OSError, trio.TooSlowError) as exc:
                await session.notice("No checkpoint was taken", _reason(exc), severity="warning")
                return
        if taken.damaged is not None:
            await session.notice(
                "The checkpoints were damaged", _damaged(taken), severity="warning"
            )
        if taken.left_out:
            title = f"Checkpoint {taken.checkpoint.number} is not complete"
            await session.notice(title, _left_out(taken))

    async def _list(self, git: ShadowGit) -> str:
        lines = [f"{c.number}. {_time(c.seconds)} {c.words}" for c in await git.checkpoints()]
        return "\n".join(lines) or "There are no checkpoints of this directory."

    async def _restore(self, git: ShadowGit, number: int) -> str:
        done = await git.restore(number)
        undo = done.undo.checkpoint.number
        files = "file" if done.written == 1 else "files"
        text = (
            f"Restored checkpoint {number}: {done.written} {files} written, "
            f"{done.deleted} deleted. /rewind {undo} undoes it. "
            "The agent does not know of it."
        )
        if done.failed:
            text += f"\nNot possible for: {_names(done.failed)}"
        return f"{text}\n{_left_out(done.undo)}" if done.undo.left_out else text

    def _git(self, session: Session) -> ShadowGit:
        """The repository for the session's directory. Raises `CheckpointError`."""
        told = session.user_session.cwd
        if not os.path.isabs(told) or not os.path.isdir(told):
            raise CheckpointError(f"the session has no directory ({told or 'none'}).")
        root = Path(told).resolve()
        if any(same_directory(told, each) for each in ("/", os.path.expanduser("~"))):
            raise CheckpointError(f"{root} is too large for checkpoints.")
        name = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
        directory = (self.directory or _state_directory()).resolve() / name
        if directory.is_relative_to(root):
            raise CheckpointError(f"the checkpoints would be inside of {root}", str(directory))
        return ShadowGit(root, directory, self.max_file_bytes, self.keep)


def _state_directory() -> Path:
    from platformdirs import user_state_path

    return user_state_path("acp-conductor", appauthor=False) / "checkpoints"


def _reason(exc: CheckpointError | OSError | trio.TooSlowError) -> str:
    """Text for the user; for a remote one without other files of this machine."""
    match exc:
        case trio.TooSlowError():
            return "it took too long"
        case _ if not details_are_withheld():
            return str(exc)
        case CheckpointError():
            reason = exc.reason
        case _:
            reason = exc.strerror or type(exc).__name__
    log.warning("checkpoint not possible", reason=str(exc))
    return reason


def _first_words(text: str) -> str:
    line = text[:200].replace("\0", " ")
    return textwrap.shorten(line, 60, placeholder=" …") or "(no text)"


def _time(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _damaged(taken: Snapshot) -> str:
    text = f"Checkpoint {taken.checkpoint.number} is the first of new ones"
    return text if details_are_withheld() else f"{text}; the old ones are in {taken.damaged}"


def _left_out(taken: Snapshot) -> str:
    reasons = "too large, unreadable, no regular file, or a repository of its own"
    return f"Left out ({reasons}): {_names(taken.left_out)}"


def _names(paths: Sequence[str]) -> str:
    """Some paths, as text for the user: a name may have any bytes but a slash."""
    plain = [os.fsencode(path).decode(errors="replace") for path in paths[:5]]
    shown = ["".join(char if char.isprintable() else "\ufffd" for char in path) for path in plain]
    named = ", ".join(textwrap.shorten(path, 200, placeholder="…") or "…" for path in shown)
    return f"{named} and {len(paths) - 5} more" if len(paths) > 5 else named
