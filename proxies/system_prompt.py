"""`system_prompt`: gives every session the same instructions.

An agent with the system prompt capability gets them in the request that opens the session. For
others they are put before the first prompt, or left out with `otherwise: skip`. They are removed
from prompts that such an agent replays or echoes, unless the file was edited in between.

Options:
    text, file  the instructions; of both, the text comes first
    mode        append (default) to the agent's own instructions, or override them. For an agent
                without override they are appended, with a warning in the log.
    otherwise   prompt (default) or skip, for an agent without the capability
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import attrs
import trio

from conductor.proxy import (
    Forward,
    Prompt,
    Proxy,
    Session,
    SessionSetup,
    get_logger,
    on_prompt,
    on_session,
    on_session_setup,
    on_update,
    per_session,
    text,
)

__all__ = ["SystemPrompt"]

log = get_logger(component="system_prompt")


@attrs.define
class SystemPrompt(Proxy):
    """Give every session the same instructions."""

    text: str = ""
    file: Path | None = None
    mode: Literal["append", "override"] = "append"
    otherwise: Literal["prompt", "skip"] = "prompt"
    _prepended: str = attrs.field(default="", init=False)
    """The instructions that are put before first prompts, as last read."""

    waiting = per_session(str)
    """The instructions to put before the session's first prompt."""

    def __attrs_post_init__(self) -> None:
        if not self.text and self.file is None:
            raise ValueError("there are no instructions: give `text` or `file`")

    @on_session_setup
    async def set_up(self, setup: SessionSetup, forward: Forward) -> Any:
        if self._capability is not None:
            given = setup.params.get("systemPrompt") or {}
            setup.params["systemPrompt"] = await self._with_instructions(given)
        elif self.otherwise == "prompt":
            self._prepended = await self._read()
        return await forward()

    @on_session
    async def opened(self, session: Session) -> None:
        """Of other sessions, the instructions in the first prompt are part of the history."""
        if session.opened_by == "new" and self._capability is None:
            self.waiting[session.id] = self._prepended

    @on_update("user_message", "user_message_chunk")
    async def echo(self, session: Session, update: dict[str, Any], forward: Forward) -> None:
        content = update.get("content")
        if not isinstance(content, list):
            update["content"] = self._without(content)
        else:
            update["content"] = [left for block in content if (left := self._without(block))]
        if update["content"] is not None or content is None:
            await forward()

    @on_prompt
    async def prompt(self, session: Session, prompt: Prompt, forward: Forward) -> Any:
        if instructions := self.waiting.pop(session.id, ""):
            prompt.blocks.insert(0, text(instructions))
        return await forward()

    @property
    def _capability(self) -> dict[str, Any] | None:
        """The agent's system prompt capability; `None` if absent."""
        holder = "sessionCapabilities" if self.protocol_version == 1 else "session"
        found: dict[str, Any] | None = (self.agent_capabilities.get(holder) or {}).get(
            "systemPrompt"
        )
        return found

    def _without(self, block: Any) -> Any:
        """Return a user content block without the instructions; `None` if nothing is left."""
        shown = block.get("text") if isinstance(block, dict) else None
        if not (self._prepended and isinstance(shown, str) and shown.startswith(self._prepended)):
            return block
        rest = shown[len(self._prepended) :].lstrip("\n")
        return {**block, "text": rest} if rest else None

    async def _with_instructions(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the instructions after those of the client, or alone in mode override."""
        mode = self.mode
        can_override = ((self._capability or {}).get("mode") or {}).get("override") is not None
        if mode == "override" and not can_override:
            log.warning("system prompt appended: the agent does not support override")
            mode = "append"
        instructions = text(await self._read())
        if mode == "override" or not given:
            return {"mode": mode, "content": [instructions]}
        return {**given, "content": [*given["content"], instructions]}

    async def _read(self) -> str:
        """Return the current instructions: the file may have been edited since the start."""
        if self.file is None:
            return self.text
        content = await trio.Path(self.file).read_text(encoding="utf-8")
        return f"{self.text}\n\n{content}".strip()
