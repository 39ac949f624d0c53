"""`additional_directories`: further directories of a session, for an agent that knows only one.

A client names them in `additionalDirectories` only to an agent that announces the capability. This
proxy announces it, takes the member out of the request, and puts a text with the directories before
the first prompt. Whether the agent's tools reach them depends on the agent. One with the capability
gets them as they are.

Options:
    mode  tell (default); or refuse: the capability is not announced, and the set-up of a session
          with further directories is an error

The text comes before the first prompt other than a slash command, in a new session and after each
load or resume; once more if the prompt fails. It is removed from prompts that the agent replays or
echoes.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final, Literal

import attrs

from conductor.directories import same_directory
from conductor.error_codes import INVALID_PARAMS
from conductor.proxy import (
    Forward,
    Prompt,
    Proxy,
    RequestError,
    Session,
    SessionSetup,
    on,
    on_prompt,
    on_session_setup,
    on_update,
    per_session,
)
from proxies.shared.capabilities import SESSION, has_capability, with_capability
from proxies.shared.first_prompt import forward_with, has_user_text

__all__ = ["AdditionalDirectories"]

_MEMBER: Final = "additionalDirectories"
_TAG: Final = "additional_directories"
_NOTE: Final = """\
<{tag}>
The workspace of this session has these directories besides the working directory:
{lines}
Use absolute paths for them. Your tools may not reach them; if so, say it to the user.
</{tag}>"""
_WRITTEN: Final = re.compile(rf"<{_TAG}>\n.*?\n</{_TAG}>\n*", re.S)


@attrs.define
class AdditionalDirectories(Proxy):
    """Tell an agent that knows only one directory about the others of a session."""

    mode: Literal["tell", "refuse"] = "tell"

    _is_needed: bool = attrs.field(default=False, init=False)

    untold = per_session(str)
    """Text for the agent, sent before the next prompt."""

    @on("initialize")
    async def announce(self, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        self._is_needed = not has_capability(result, SESSION, _MEMBER)
        if self._is_needed and self.mode == "tell" and isinstance(result, dict):
            return with_capability(result, SESSION, _MEMBER, {})
        return result

    @on_session_setup
    async def set_up(self, setup: SessionSetup, forward: Forward) -> Any:
        if not self._is_needed:
            return await forward()
        given = setup.params.pop(_MEMBER, [])
        directories = _checked(given, setup.cwd)
        if directories and self.mode == "refuse":
            listed = ", ".join(directories)
            raise _error(f"the agent works in one directory, and cannot use {listed}")
        result = await forward()
        id = result.get("sessionId", setup.session_id) if isinstance(result, dict) else None
        if isinstance(id, str):
            lines = "\n".join(f"- {each}" for each in directories)
            self.untold[id] = _NOTE.format(tag=_TAG, lines=lines) if lines else ""
        return result

    @on_prompt
    async def prompt(self, session: Session, prompt: Prompt, forward: Forward) -> Any:
        return await forward_with(self.untold, session, prompt, forward)

    @on_update("user_message", "user_message_chunk")
    async def echo(self, session: Session, update: dict[str, Any], forward: Forward) -> None:
        if not self._is_needed or has_user_text(update, _without_note):
            await forward()


def _checked(directories: Any, cwd: str) -> list[str]:
    """The directories but `cwd`. Raises `RequestError` if they are not a list of absolute
    paths."""
    known = isinstance(directories, list) and all(
        isinstance(each, str) and os.path.isabs(each) for each in directories
    )
    if not known:
        raise _error("they must be a list of absolute paths")
    return [each for each in dict.fromkeys(directories) if not same_directory(each, cwd)]


def _without_note(text: str) -> str:
    found = _WRITTEN.match(text)
    return text if found is None else text[found.end() :]


def _error(problem: str) -> RequestError:
    return RequestError(INVALID_PARAMS, f"additional_directories: {problem}")
