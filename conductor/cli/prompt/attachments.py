"""Files and images of a prompt: read before the chain starts, sent as content blocks.

A file is embedded if the agent supports it, else sent as a link, which every agent must accept. An
image needs an agent that supports images.
"""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from conductor.cli.prompt.conversation import DeclaredCapabilities
from conductor.files import read_regular
from conductor.proxy.slash_commands import is_slash_command

__all__ = ["Attachment", "AttachmentError", "prompt_blocks", "read_attachments"]

_MAX_BYTES: Final = 20 * 1024 * 1024
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
        return read_regular(path, _MAX_BYTES)
    except FileNotFoundError:
        raise AttachmentError(f"{path} does not exist") from None
    except OSError as exc:
        raise AttachmentError(f"{path}: {exc.strerror}") from exc
