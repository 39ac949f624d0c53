"""`prompt_content`: images, audio and embedded resources, for an agent that takes only text.

A client sends them only to an agent that announces them. This proxy announces what the agent lacks.
An embedded text becomes a fenced block below its URI. Everything else is written to a file, and the
agent gets a link to it: whether it can look at an image there depends on its tools. Content that
the agent takes passes unchanged.

Options:
    directory  where the files are; default: `prompt-files` in the state directory of the user. An
               agent that reads only certain directories, or runs in a sandbox, needs one of those
    max_bytes  of the files of one session; beyond it, its oldest are removed; default 100 MiB. A
               larger content is an error

The files are private, and deleted with the session or at the end of the chain. What the agent
echoes of a prompt is shown as it was sent, as long as the file exists.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import trio
from attrs.validators import ge

from conductor.bounded_dict import BoundedDict
from conductor.error_codes import INTERNAL_ERROR, INVALID_PARAMS
from conductor.errors import details_are_withheld
from conductor.proxy import (
    Forward,
    Prompt,
    Proxy,
    RequestError,
    Session,
    get_logger,
    on,
    on_prompt,
    on_session_end,
    on_update,
    per_session,
)
from conductor.proxy.slash_commands import is_slash_command
from proxies.prompt_content.blocks import KINDS, Given, as_link, as_text, key_of, kind_of, media_of
from proxies.prompt_content.files import PromptFiles, TooLarge
from proxies.shared.capabilities import PROMPT, has_capability, with_capability

__all__ = ["PromptContent"]

log = get_logger(component="prompt_content")

_REMEMBERED: Final = 200
"""Blocks of a session that are shown in their own form when they are echoed."""


@attrs.define
class PromptContent(Proxy):
    """Give images, audio and resources to an agent that takes only text."""

    directory: Path | None = None
    max_bytes: int = attrs.field(default=100 << 20, validator=ge(1))

    _lacking: frozenset[str] = attrs.field(default=frozenset(), init=False)
    """The capabilities that the agent does not announce."""
    _files: PromptFiles = attrs.field(init=False)

    given = per_session(lambda: BoundedDict[str, Given](_REMEMBERED))
    """Replaced blocks by `key_of`, the oldest first."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        self._files = PromptFiles(self.directory or _default_directory(), self.max_bytes)
        try:
            yield
        finally:
            self._files.close()

    @on("initialize")
    async def announce(self, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        if isinstance(result, dict):
            names = KINDS.values()
            lacking = [name for name in names if not has_capability(result, PROMPT, name)]
            value: Any = {} if result.get("protocolVersion") == 2 else True
            for name in lacking:
                result = with_capability(result, PROMPT, name, value)
            self._lacking = frozenset(lacking)
        return result

    @on_prompt
    async def prompt(self, session: Session, prompt: Prompt, forward: Forward) -> Any:
        if self._lacking:
            is_command = prompt.is_command
            for index, block in enumerate(prompt.blocks):
                if kind_of(block) in self._lacking:
                    prompt.blocks[index] = await self._replaced(session.id, block)
            if is_command:  # no text that was an embedded file may come before it
                prompt.blocks.sort(key=lambda block: not is_slash_command([block]))
        return await forward()

    @on_update("user_message", "user_message_chunk")
    async def echo(self, session: Session, update: dict[str, Any], forward: Forward) -> None:
        given, content = self.given.get(session.id), update.get("content")
        if given and isinstance(content, list):
            update["content"] = [_original(given, block) for block in content]
        elif given:
            update["content"] = _original(given, content)
        await forward()

    @on_session_end
    async def ended(self, session: Session) -> None:
        self._files.delete(session.id)

    # ----------------------------------------------------------------------------------------------

    async def _replaced(self, session: str, block: dict[str, Any]) -> dict[str, Any]:
        """The block in a form that the agent takes."""
        found = as_text(block) or await self._in_file(session, block)
        if found is None:
            raise _error(block, "it has no content")
        replaced, given = found
        known, key = self.given[session], key_of(replaced)
        assert key is not None
        known[key] = given
        return replaced

    async def _in_file(
        self, session: str, block: dict[str, Any]
    ) -> tuple[dict[str, Any], Given] | None:
        try:
            media = media_of(block)
            if media is None:
                return None
            write = self._files.write
            file = await trio.to_thread.run_sync(write, session, media.name, media.data)
        except ValueError as exc:
            raise _error(block, str(exc)) from None
        except TooLarge:
            raise _error(block, f"it is larger than `max_bytes` ({self.max_bytes})") from None
        except OSError as exc:
            log.warning("no file can be written", reason=str(exc))
            reason = exc.strerror if details_are_withheld() else exc
            raise _error(block, f"no file can be written: {reason}", INTERNAL_ERROR) from None
        return as_link(block, media, file)


def _original(given: BoundedDict[str, Given], block: Any) -> Any:
    """The block as the user has sent it, if the agent got another for it."""
    found = given.get(key_of(block) or "")
    try:
        return block if found is None else found.original(block)
    except OSError:
        return block  # the file was removed


def _error(block: dict[str, Any], problem: str, code: int = INVALID_PARAMS) -> RequestError:
    what = f"content of the type {block.get('type')} cannot be given to the agent"
    return RequestError(code, f"prompt_content: {what}: {problem}")


def _default_directory() -> Path:
    from platformdirs import user_state_path

    return user_state_path("acp-conductor", appauthor=False) / "prompt-files"
