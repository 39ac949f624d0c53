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

from conductor.log import get_logger
from conductor.proxy import Forward, Proxy, on, per_session
from proxies._messages import update_of_kind
from proxies._slash_commands import AnnouncedCommands, SlashCommands

__all__ = ["SystemPrompt"]

log = get_logger(component="system_prompt")


@attrs.define
class SystemPrompt(Proxy):
    """Give every session the same instructions."""

    text: str = ""
    file: Path | None = None
    mode: Literal["append", "override"] = "append"
    otherwise: Literal["prompt", "skip"] = "prompt"
    _capability: dict[str, Any] | None = attrs.field(default=None, init=False)
    """The agent's system prompt capability; `None` if absent."""

    _commands: SlashCommands = attrs.field(factory=SlashCommands, init=False)

    _prepended: str = attrs.field(default="", init=False)
    """The instructions that are put before first prompts, as last read."""

    waiting = per_session(list[str])
    """Texts to put before the session's first prompt."""

    def __attrs_post_init__(self) -> None:
        if not self.text and self.file is None:
            raise ValueError("there are no instructions: give `text` or `file`")

    @on("initialize")
    async def initialize(self, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        if result.get("protocolVersion", 1) == 1:
            session = (result.get("agentCapabilities") or {}).get("sessionCapabilities")
        else:
            session = (result.get("capabilities") or {}).get("session")
        self._capability = (session or {}).get("systemPrompt")
        return self._commands.initialized(result)

    @on("session/new")
    async def new_session(self, params: dict[str, Any], forward: Forward) -> Any:
        if self._capability is not None:
            return await forward(await self._with_instructions(params))
        result = await forward()
        if self.otherwise == "prompt":
            self._prepended = await self._read()
            self.waiting[result["sessionId"]].append(self._prepended)
        return result

    @on("session/load")
    @on("session/resume")
    @on("session/fork")
    async def reopen(self, params: dict[str, Any], forward: Forward) -> Any:
        """Send a system prompt again. Instructions in the first prompt are part of the history."""
        if self._capability is not None:
            return await forward(await self._with_instructions(params))
        if self.otherwise == "prompt":
            self._prepended = await self._read()
        return await forward()

    @on("session/update")
    async def update(self, raw: bytes, forward: Forward) -> None:
        params = self._prepended and update_of_kind(raw, "user_message", "user_message_chunk")
        content = params and params["update"].get("content")
        blocks = content if isinstance(content, list) else [content]
        left = [block for block in map(self._without, blocks) if block]
        if not params or left == blocks:
            await forward()
        elif isinstance(content, list) or left:
            content = left if isinstance(content, list) else left[0]
            await forward({**params, "update": {**params["update"], "content": content}})

    @on("session/prompt")
    async def prompt(self, params: dict[str, Any], forward: Forward) -> Any:
        # By the names in the `initialize` result only: announced commands are not read.
        if self._commands.calls_other(params, AnnouncedCommands()):
            return await forward()
        waiting = self.waiting.pop(params["sessionId"], [])
        if not waiting:
            return await forward()
        blocks = [{"type": "text", "text": text} for text in waiting]
        return await forward({**params, "prompt": [*blocks, *params["prompt"]]})

    def _without(self, block: Any) -> Any:
        """Return a user content block without the instructions; `None` if nothing is left."""
        text = block.get("text") if isinstance(block, dict) else None
        if not isinstance(text, str) or not text.startswith(self._prepended):
            return block
        rest = text[len(self._prepended) :].lstrip("\n")
        return {**block, "text": rest} if rest else None

    async def _with_instructions(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return the request with the instructions, after the client's unless in mode override."""
        existing = params.get("systemPrompt") or {}
        mode = self.mode
        if (
            mode == "override"
            and ((self._capability or {}).get("mode") or {}).get("override") is None
        ):
            log.warning("system prompt appended: the agent does not support override")
            mode = "append"
        block = {"type": "text", "text": await self._read()}
        if mode == "override" or not existing:
            return {**params, "systemPrompt": {"mode": mode, "content": [block]}}
        return {**params, "systemPrompt": {**existing, "content": [*existing["content"], block]}}

    async def _read(self) -> str:
        """Return the current instructions: the file may have been edited since the start."""
        if self.file is None:
            return self.text
        content = await trio.Path(self.file).read_text(encoding="utf-8")
        return f"{self.text}\n\n{content}".strip()
