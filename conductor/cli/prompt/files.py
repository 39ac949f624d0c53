"""Files of `prompt`: those that are sent with a prompt, and those that `--fs` serves to the agent.

A file that is sent is read before the chain starts. It is embedded if the agent supports it, else a
link, which every agent must accept; an image needs an agent that supports images. `--fs` serves
text files below one directory, symbolic links resolved. That is not a sandbox (an agent can read
files itself): it limits which files this client serves.
"""

from __future__ import annotations

import base64
import errno
import mimetypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from conductor.cli.prompt.conversation import DeclaredCapabilities
from conductor.error_codes import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND
from conductor.errors import RequestError
from conductor.files import open_inside, read_regular
from conductor.proxy.slash_commands import is_slash_command

__all__ = ["Attachment", "AttachmentError", "ClientFiles", "prompt_blocks", "read_attachments"]

_MAX_SENT: Final = 20 * 1024 * 1024
_MAX_SERVED: Final = 64 << 20


_IMAGES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
)


class AttachmentError(Exception):
    """A file that cannot be attached; the message is for the user."""


@attrs.frozen
class Attachment:
    """A file with its content."""

    path: Path
    data: bytes = attrs.field(repr=False)
    media_type: str
    is_image: bool = False

    def block(self, capabilities: DeclaredCapabilities) -> dict[str, Any]:
        """The content block for an agent with these capabilities. Raises `AttachmentError`."""
        uri = self.path.as_uri()
        if self.is_image:
            if not capabilities.image:
                raise AttachmentError(f"{self.path}: the agent does not accept images")
            return {"type": "image", "mimeType": self.media_type, "data": self._base64}
        if not capabilities.embedded_context:
            return {
                "type": "resource_link",
                "uri": uri,
                "name": self.path.name,
                "mimeType": self.media_type,
                "size": len(self.data),
            }
        resource: dict[str, Any] = {"uri": uri, "mimeType": self.media_type}
        try:
            resource["text"] = self.data.decode()
        except UnicodeDecodeError:
            resource["blob"] = self._base64
        return {"type": "resource", "resource": resource}

    @property
    def _base64(self) -> str:
        return base64.b64encode(self.data).decode()


def read_attachments(files: Sequence[str], images: Sequence[str]) -> list[Attachment]:
    """Read the files, then the images. Raises `AttachmentError`."""
    return [_read_file(path) for path in files] + [_read_image(path) for path in images]


def prompt_blocks(
    text: str, attachments: Sequence[Attachment], capabilities: DeclaredCapabilities
) -> list[dict[str, Any]]:
    """The content blocks of a prompt: the attachments, then the text; a slash command comes first,
    where agents look for it."""
    said = {"type": "text", "text": text}
    attached = [each.block(capabilities) for each in attachments]
    return [said, *attached] if is_slash_command([said]) else [*attached, said]


def _read_file(path: str) -> Attachment:
    data = _read(path)
    guess = mimetypes.guess_type(path)[0]
    is_text = b"\0" not in data[:8192]
    media_type = guess or ("text/plain" if is_text else "application/octet-stream")
    return Attachment(Path(path).resolve(), data, media_type)


def _read_image(path: str) -> Attachment:
    data = _read(path)
    media_type = next((kind for start, kind in _IMAGES if data.startswith(start)), None)
    if media_type is None and data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        media_type = "image/webp"
    guess = media_type or mimetypes.guess_type(path)[0] or ""
    if not guess.startswith("image/"):
        raise AttachmentError(f"{path} is not an image: neither its content nor its name says so")
    return Attachment(Path(path).resolve(), data, guess, is_image=True)


def _read(path: str) -> bytes:
    try:
        return read_regular(path, _MAX_SENT)
    except FileNotFoundError:
        raise AttachmentError(f"{path} does not exist") from None
    except OSError as exc:
        raise AttachmentError(f"{path}: {exc.strerror}") from exc


class ClientFiles:
    """Reads and writes below `root`."""

    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(root)

    def read(self, params: Any) -> dict[str, Any]:
        """`fs/read_text_file`: `line` counts from 1, `limit` is a number of lines."""
        path = _path(params)
        line, limit = _count(params, "line", 1), _count(params, "limit", None)
        try:
            with os.fdopen(open_inside(path, [self._root]), "rb") as file:
                data = file.read(_MAX_SERVED + 1)
            if len(data) > _MAX_SERVED:
                raise RequestError(INVALID_PARAMS, f"{path} is larger than {_MAX_SERVED >> 20} MiB")
            text = data.decode()
        except (OSError, UnicodeDecodeError) as exc:
            raise self._error(path, exc) from exc
        if line == 1 and limit is None:
            return {"content": text}
        assert line is not None
        lines = text.splitlines(keepends=True)[max(line - 1, 0) :]
        return {"content": "".join(lines if limit is None else lines[:limit])}

    def write(self, params: Any) -> None:
        """`fs/write_text_file`: creates the file and its parent directories if they are missing."""
        path = _path(params)
        content = params.get("content")
        if not isinstance(content, str):
            raise RequestError(INVALID_PARAMS, "content must be a string")
        try:
            descriptor = open_inside(path, [self._root], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(content)
        except (OSError, UnicodeEncodeError) as exc:
            raise self._error(path, exc) from exc

    def _error(self, path: str, exc: Exception) -> RequestError:
        match exc:
            case FileNotFoundError():
                return RequestError(RESOURCE_NOT_FOUND, "Resource not found", {"path": path})
            case OSError(errno=errno.EXDEV):
                return RequestError(INVALID_PARAMS, f"{path} is outside of {self._root}")
            case OSError():
                return RequestError(INTERNAL_ERROR, f"{path}: {exc.strerror}")
        return RequestError(INTERNAL_ERROR, f"{path} is not UTF-8 text")


def _path(params: Any) -> str:
    path = params.get("path") if isinstance(params, dict) else None
    if not isinstance(path, str) or not os.path.isabs(path) or "\0" in path:
        raise RequestError(INVALID_PARAMS, "path must be an absolute path")
    return path


def _count(params: dict[str, Any], name: str, default: int | None) -> int | None:
    value = params.get(name)
    if value is None:
        return default
    if type(value) is not int or value < 0:
        raise RequestError(INVALID_PARAMS, f"{name} must be a whole number")
    return value
