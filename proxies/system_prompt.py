"""`system_prompt`: gives every session the same instructions.

An agent with the system prompt capability gets them in the request that opens the session. For
others they are put before the first prompt, or left out with `otherwise: skip`. They are removed
from prompts that such an agent replays or echoes, unless the file was edited in between.

Options:
    text        the instructions
    file        a file with them; what `text` has comes first
    of_client   for an agent without the capability, announce it, and put what the client gives for
                a session before its first prompt, too; default false
    mode        append (default) to the agent's own instructions, or override them. For an agent
                without override they are appended, with a warning in the log.
    otherwise   prompt (default) or skip, for an agent without the capability
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import attrs
import trio

from conductor.error_codes import INTERNAL_ERROR, INVALID_PARAMS
from conductor.files import read_named
from conductor.proxy import (
    Forward,
    Placement,
    Prompt,
    Proxy,
    RequestError,
    Session,
    SessionSetup,
    get_logger,
    on,
    on_prompt,
    on_session_setup,
    on_update,
    per_session,
)
from conductor.proxy.slash_commands import is_slash_command
from proxies.context.files import search_path
from proxies.shared.capabilities import SESSION, with_capability
from proxies.shared.first_prompt import forward_with, has_user_text

__all__ = ["SystemPrompt"]

_MEMBER: Final = "systemPrompt"
_MAX_BYTES: Final = 1 << 20
"""Size of a file with instructions."""

log = get_logger(component="system_prompt")


@attrs.define
class SystemPrompt(Proxy):
    """Give every session the same instructions."""

    text: str = ""
    file: Path | None = None
    of_client: bool = attrs.field(default=False, kw_only=True)
    mode: Literal["append", "override"] = "append"
    otherwise: Literal["prompt", "skip"] = "prompt"

    _unprompted: set[str] = attrs.field(factory=set, init=False)
    """Sessions that are opened again, with only slash commands in the replay so far."""

    prepended = per_session(str)
    """Text for the session's first prompt."""
    waiting = per_session(str)
    """The same, until it was."""

    def __attrs_post_init__(self) -> None:
        if not self.text and self.file is None and not self.of_client:
            raise ValueError("there are no instructions: give `text` or `file`")
        if self.of_client and self.otherwise == "skip":
            raise ValueError("`of_client` puts instructions before prompts, `otherwise: skip` none")

    def placement(self) -> Placement:
        adds = self.text or self.file is not None
        return Placement(effects={"adds_text"} if adds else set())

    @on("initialize")
    async def announce(self, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        if self.of_client and isinstance(result, dict) and self._capability is None:
            return with_capability(result, SESSION, _MEMBER, {})
        return result

    @on_session_setup
    async def set_up(self, setup: SessionSetup, forward: Forward) -> Any:
        if self._capability is not None:
            if self.text or self.file is not None:
                given = setup.params.get(_MEMBER) or {}
                setup.params[_MEMBER] = await self._with_instructions(given, setup)
            return await forward()
        if self.otherwise == "skip":
            return await forward()
        given = _texts(setup.params.pop(_MEMBER, None)) if self.of_client else []
        prepended = "\n\n".join(each for each in (*given, await self._read(setup)) if each)
        if setup.session_id is not None:  # a replay comes before the answer
            self.prepended[setup.session_id] = prepended
            self._unprompted.add(setup.session_id)
        try:
            result = await forward()
        finally:
            self._unprompted.discard(setup.session_id or "")
        id = result.get("sessionId", setup.session_id) if isinstance(result, dict) else None
        if isinstance(id, str):
            self.prepended[id] = prepended
            if setup.opened_by == "new" or self.waiting.get(setup.session_id or ""):
                self.waiting[id] = prepended  # in others it is part of the history
        return result

    @on_update("user_message", "user_message_chunk")
    async def echo(self, session: Session, update: dict[str, Any], forward: Forward) -> None:
        prepended, content = self.prepended.get(session.id), update.get("content")
        if session.id in self._unprompted:
            if is_slash_command(content if isinstance(content, list) else [content]):
                self.waiting[session.id] = prepended or ""
            else:
                self.waiting[session.id] = ""
                self._unprompted.remove(session.id)
        if not prepended or has_user_text(update, lambda shown: _without(shown, prepended)):
            await forward()

    @on_prompt
    async def prompt(self, session: Session, prompt: Prompt, forward: Forward) -> Any:
        return await forward_with(self.waiting, session, prompt, forward)

    @property
    def _capability(self) -> dict[str, Any] | None:
        """The agent's system prompt capability; `None` if absent."""
        holder = "sessionCapabilities" if self.protocol_version == 1 else "session"
        found: dict[str, Any] | None = (self.agent_capabilities.get(holder) or {}).get(_MEMBER)
        return found

    async def _with_instructions(
        self, given: dict[str, Any], setup: SessionSetup
    ) -> dict[str, Any]:
        """Return the instructions after those of the client, or alone in mode override."""
        mode = self.mode
        can_override = ((self._capability or {}).get("mode") or {}).get("override") is not None
        if mode == "override" and not can_override:
            log.warning("system prompt appended: the agent does not support override")
            mode = "append"
        instructions = {"type": "text", "text": await self._read(setup)}
        if mode == "override" or not given:
            return {"mode": mode, "content": [instructions]}
        return {**given, "content": [*given["content"], instructions]}

    async def _read(self, setup: SessionSetup) -> str:
        """Return the current instructions: the file may have been edited since the start.

        An agent in a sandbox can replace a file of its project, so that a link in it must not lead
        out of it.
        """
        if self.file is None:
            return self.text
        roots = [*search_path(setup.cwd)[-1:], *(setup.params.get("additionalDirectories") or ())]
        read = partial(read_named, str(self.file), roots, _MAX_BYTES)
        try:
            content = (await trio.to_thread.run_sync(read)).decode()
        except OSError as exc:
            reason = f"system_prompt: {self.file} cannot be read: {exc.strerror}"
            raise RequestError(INTERNAL_ERROR, reason) from None
        return f"{self.text}\n\n{content}".strip()


def _without(shown: str, prepended: str) -> str:
    """Return a user's text without the instructions."""
    return shown[len(prepended) :].lstrip("\n") if shown.startswith(prepended) else shown


def _texts(given: Any) -> list[str]:
    """The texts of a client's system prompt. Raises `RequestError` if it has something else."""
    content = given.get("content") if isinstance(given, dict) else None
    texts = [each.get("text") if isinstance(each, dict) else None for each in content or ()]
    if not all(isinstance(each, str) for each in texts):
        problem = "the agent takes no system prompt, and only a text can come before prompts"
        raise RequestError(INVALID_PARAMS, f"system_prompt: {problem}")
    return [each for each in texts if isinstance(each, str)]
