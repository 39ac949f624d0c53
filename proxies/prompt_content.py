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

import base64
import binascii
import fcntl
import mimetypes
import os
import re
import shutil
import tempfile
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import attrs
import trio
from attrs.validators import ge

from conductor.bounded_dict import BoundedDict
from conductor.error_codes import INTERNAL_ERROR, INVALID_PARAMS
from conductor.errors import details_are_withheld
from conductor.files import lock_file, open_own, read_own
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
from proxies.shared.capabilities import PROMPT, has_capability, with_capability

__all__ = ["PromptContent"]

log = get_logger(component="prompt_content")

_REMEMBERED: Final = 200
"""Blocks of a session that are shown in their own form when they are echoed."""
_KINDS: Final = {"image": "image", "audio": "audio", "resource": "embeddedContext"}
"""The capability that a content block of a type needs."""
_LOCK: Final = ".lock"
_PATIENCE: Final = 5.0
"""Seconds to wait for the lock of the parent, which the agent may keep."""
_SAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_BACKTICKS: Final = re.compile(r"`+")


@attrs.frozen
class _Given:
    """A block for which the agent got another; without its content if that is in a file."""

    block: dict[str, Any]
    file: Path | None = None
    size: int = 0
    """Bytes of the file."""

    def original(self) -> dict[str, Any]:
        """The block as the client has sent it. Raises `OSError` if the file is gone or another."""
        if self.file is None:
            return self.block
        content = base64.b64encode(read_own(self.file, self.size)).decode()
        return _with_content(self.block, content)


@attrs.define
class PromptContent(Proxy):
    """Give images, audio and resources to an agent that takes only text."""

    directory: Path | None = None
    max_bytes: int = attrs.field(default=100 << 20, validator=ge(1))

    _lacking: frozenset[str] = attrs.field(default=frozenset(), init=False)
    """The capabilities that the agent does not announce."""
    _files: _PromptFiles = attrs.field(init=False)

    given = per_session(lambda: BoundedDict[str, _Given](_REMEMBERED))
    """Replaced blocks by `_key_of`, the oldest first."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        self._files = _PromptFiles(self.directory or _default_directory(), self.max_bytes)
        try:
            yield
        finally:
            self._files.close()

    @on("initialize")
    async def announce(self, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        if isinstance(result, dict):
            names = _KINDS.values()
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
                if _kind_of(block) in self._lacking:
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
        found = _as_text(block) or await self._in_file(session, block)
        if found is None:
            raise _error(block, "it has no content")
        replaced, given = found
        known, key = self.given[session], _key_of(replaced)
        assert key is not None
        known[key] = given
        return replaced

    async def _in_file(
        self, session: str, block: dict[str, Any]
    ) -> tuple[dict[str, Any], _Given] | None:
        try:
            found = _binary(block)
            if found is None:
                return None
            holder, content = found
            name, write = _file_name(block["type"], holder), self._files.write
            file = await trio.to_thread.run_sync(write, session, name, content)
        except ValueError as exc:
            raise _error(block, str(exc)) from None
        except OSError as exc:
            log.warning("no file can be written", reason=str(exc))
            reason = exc.strerror if details_are_withheld() else exc
            raise _error(block, f"no file can be written: {reason}", INTERNAL_ERROR) from None
        return _as_link(block, holder, name, file, len(content))


def _original(given: BoundedDict[str, _Given], block: Any) -> Any:
    """The block as the user has sent it, if the agent got another for it."""
    found = given.get(_key_of(block) or "")
    try:
        return block if found is None else found.original()
    except OSError:
        return block  # the file was removed


def _error(block: dict[str, Any], problem: str, code: int = INVALID_PARAMS) -> RequestError:
    what = f"content of the type {block.get('type')} cannot be given to the agent"
    return RequestError(code, f"prompt_content: {what}: {problem}")


def _key_of(block: Any) -> str | None:
    """Text or address, which recognizes a block when the agent echoes it."""
    type = block.get("type") if isinstance(block, dict) else None
    return block.get({"text": "text", "resource_link": "uri"}.get(type, "")) if type else None


def _kind_of(block: Any) -> str | None:
    """The capability that a content block needs; `None` if every agent takes it."""
    type = block.get("type") if isinstance(block, dict) else None
    return _KINDS.get(type) if isinstance(type, str) else None


def _binary(block: dict[str, Any]) -> tuple[dict[str, Any], bytes] | None:
    """The binary content of a block, with the object that has it; `None` if it has none. Raises
    `ValueError` if it is not base64."""
    holder, member = (block.get("resource"), "blob") if _embeds(block) else (block, "data")
    encoded = holder.get(member) if isinstance(holder, dict) else None
    if not isinstance(holder, dict) or not isinstance(encoded, str):
        return None
    try:
        return holder, base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise ValueError(f"it is not base64: {exc}") from None


def _file_name(kind: str, holder: dict[str, Any]) -> str:
    path = unquote(urlsplit(holder.get("uri") or "").path)
    name = _SAFE.sub("-", path.rpartition("/")[2]).strip("-.")
    if "." not in name:
        name = (name or kind) + (mimetypes.guess_extension(holder.get("mimeType") or "") or "")
    return name[-80:]


def _as_link(
    block: dict[str, Any], holder: dict[str, Any], name: str, file: Path, size: int
) -> tuple[dict[str, Any], _Given]:
    """A link to the file that has the content of a block."""
    link = {name: value for name, value in block.items() if name in ("annotations", "_meta")}
    link |= {"type": "resource_link", "uri": file.as_uri(), "name": name}
    if holder.get("mimeType") is not None:
        link["mimeType"] = holder["mimeType"]
    if holder.get("uri") is not None:
        link["description"] = f"Content of {holder['uri']}"
    return {**link, "size": size}, _Given(_with_content(block, ""), file, size)


def _as_text(block: dict[str, Any]) -> tuple[dict[str, Any], _Given] | None:
    """A text with an embedded text and its URI; `None` if the block has no text."""
    resource = block.get("resource")
    content = resource.get("text") if isinstance(resource, dict) else None
    if not isinstance(resource, dict) or not isinstance(content, str):
        return None
    fence = "`" * max(3, *(len(found) + 1 for found in ("", *_BACKTICKS.findall(content))))
    head = f"{resource.get('uri')}\n{fence}\n"
    end = "" if content.endswith("\n") else "\n"
    kept = {name: value for name, value in block.items() if name in ("annotations", "_meta")}
    return {**kept, "type": "text", "text": f"{head}{content}{end}{fence}"}, _Given(block)


def _embeds(block: dict[str, Any]) -> bool:
    return block.get("type") == "resource"


def _with_content(block: dict[str, Any], content: str) -> dict[str, Any]:
    if _embeds(block):
        return {**block, "resource": {**block["resource"], "blob": content}}
    return {**block, "data": content}


# -- files -----------------------------------------------------------------------------------------
#
# A running proxy locks its directory; the next one removes the directories of killed ones.


def _default_directory() -> Path:
    from platformdirs import user_state_path

    return user_state_path("acp-conductor", appauthor=False) / "prompt-files"


@attrs.define(eq=False)
class _SessionFiles:
    directory: Path
    kept: deque[tuple[Path, int]] = attrs.field(factory=deque)
    """The oldest first, with their sizes."""


@attrs.define(eq=False)
class _PromptFiles:
    """The files of one proxy. Its methods block: they write to disk, and raise `OSError`."""

    parent: Path
    """The directory for those of all proxies."""
    max_bytes: int
    """Limit for the files of one session."""
    _own: Path | None = attrs.field(default=None, init=False)
    _lock: int | None = attrs.field(default=None, init=False)
    _sessions: dict[str, _SessionFiles] = attrs.field(factory=dict, init=False)

    def write(self, session: str, name: str, content: bytes) -> Path:
        """Write a file with a name that ends with `name`, mode 0600. The oldest files of the
        session are removed to make room. Raises `ValueError` if it is larger than all of them may
        be."""
        if len(content) > self.max_bytes:
            raise ValueError(f"it is larger than `max_bytes` ({self.max_bytes})")
        files = self._files_of(session)
        while sum(size for _, size in files.kept) + len(content) > self.max_bytes:
            oldest, _ = files.kept.popleft()
            oldest.unlink(missing_ok=True)
        descriptor, path = tempfile.mkstemp(suffix=f"-{name}", dir=files.directory)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        files.kept.append((Path(path), len(content)))
        return Path(path)

    def delete(self, session: str) -> None:
        """Remove the files of a session."""
        if (files := self._sessions.pop(session, None)) is not None:
            shutil.rmtree(files.directory, ignore_errors=True)

    def close(self) -> None:
        """Remove the files of all sessions."""
        self._sessions.clear()
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)
            self._own = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # ----------------------------------------------------------------------------------------------

    def _files_of(self, session: str) -> _SessionFiles:
        found = self._sessions.get(session)
        if found is None:
            if self._own is None:
                self._own = self._open()
            directory = Path(tempfile.mkdtemp(prefix="session-", dir=self._own))
            found = self._sessions[session] = _SessionFiles(directory)
        return found

    def _open(self) -> Path:
        self.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Not through a link: directories are removed in it.
        parent = os.open(self.parent, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            lock_file(parent, _PATIENCE)  # no other removes the new one before it has a lock
            for name in os.listdir(parent):
                _remove_if_unused(parent, name)
            own = Path(tempfile.mkdtemp(dir=self.parent))
            self._lock = open_own(own / _LOCK, os.O_RDWR | os.O_CREAT)
            fcntl.flock(self._lock, fcntl.LOCK_SH)
        finally:
            os.close(parent)
        return own


def _remove_if_unused(parent: int, name: str) -> None:
    """Remove a directory with a lock that no process holds."""
    with suppress(OSError):
        descriptor = open_own(os.path.join(name, _LOCK), os.O_RDWR, dir_fd=parent)
        try:
            lock_file(descriptor, 0)
            shutil.rmtree(name, ignore_errors=True, dir_fd=parent)
        finally:
            os.close(descriptor)
