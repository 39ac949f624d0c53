"""`system_prompt`: gives every session the same instructions.

An agent that takes a system prompt gets it with the request that opens the session. For another one
it comes before the first prompt, or, with `otherwise: skip`, not at all. Where such an agent
replays or echoes the prompt, the instructions are taken out, as the user has not written them; not
so if the file was edited in between.

Options:
    text, file  the instructions; of both, the text comes first
    mode        append (default) to the agent's own instructions, or override them. An agent that
                cannot be overridden gets them appended, with a warning in the log.
    otherwise   prompt (default) or skip: what to do with an agent that takes no system prompt
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
    _can: dict[str, Any] | None = attrs.field(default=None, init=False)
    """What the agent says about system prompts; None if it takes none."""

    _commands: SlashCommands = attrs.field(factory=SlashCommands, init=False)

    _put_in: str = attrs.field(default="", init=False)
    """What comes before first prompts, as it was read last."""

    waiting = per_session(list[str])
    """What comes before the session's first prompt."""

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
        self._can = (session or {}).get("systemPrompt")
        return self._commands.initialized(result)

    @on("session/new")
    async def new_session(self, params: dict[str, Any], forward: Forward) -> Any:
        if self._can is not None:
            return await forward(await self._instructed(params))
        result = await forward()
        if self.otherwise == "prompt":
            self._put_in = await self._read()
            self.waiting[result["sessionId"]].append(self._put_in)
        return result

    @on("session/load")
    @on("session/resume")
    @on("session/fork")
    async def reopen(self, params: dict[str, Any], forward: Forward) -> Any:
        """What came before the first prompt is in the history; a system prompt is not."""
        if self._can is not None:
            return await forward(await self._instructed(params))
        if self.otherwise == "prompt":
            self._put_in = await self._read()
        return await forward()

    @on("session/update")
    async def update(self, raw: bytes, forward: Forward) -> None:
        params = self._put_in and update_of_kind(raw, "user_message", "user_message_chunk")
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
        # Without a look at what is announced: a command of the agent's does without, too.
        if self._commands.calls_other(params, AnnouncedCommands()):
            return await forward()
        waiting = self.waiting.pop(params["sessionId"], [])
        if not waiting:
            return await forward()
        blocks = [{"type": "text", "text": text} for text in waiting]
        return await forward({**params, "prompt": [*blocks, *params["prompt"]]})

    def _without(self, block: Any) -> Any:
        """A content block of the user's, or `None` if it is nothing but the instructions."""
        text = block.get("text") if isinstance(block, dict) else None
        if not isinstance(text, str) or not text.startswith(self._put_in):
            return block
        rest = text[len(self._put_in) :].lstrip("\n")
        return {**block, "text": rest} if rest else None

    async def _instructed(self, params: dict[str, Any]) -> dict[str, Any]:
        """The request with our instructions, after the client's own unless they are overridden."""
        theirs = params.get("systemPrompt") or {}
        mode = self.mode
        if mode == "override" and ((self._can or {}).get("mode") or {}).get("override") is None:
            log.warning("the agent's system prompt cannot be overridden; it is appended to")
            mode = "append"
        ours = {"type": "text", "text": await self._read()}
        if mode == "override" or not theirs:
            return {**params, "systemPrompt": {"mode": mode, "content": [ours]}}
        return {**params, "systemPrompt": {**theirs, "content": [*theirs["content"], ours]}}

    async def _read(self) -> str:
        """The instructions as they are now: a file may have been edited since the start."""
        if self.file is None:
            return self.text
        content = await trio.Path(self.file).read_text(encoding="utf-8")
        return f"{self.text}\n\n{content}".strip()
