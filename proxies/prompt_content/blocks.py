"""Content blocks that an agent does not take, in a form that it does, and back. Pure.

An embedded text is a fenced block below its URI; other content is a link to a file. Echoes of the
agent are shown to the user in the form that the user has sent.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import mimetypes
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import attrs

from conductor.files import read_own

__all__ = ["KINDS", "Given", "Media", "as_link", "as_text", "key_of", "kind_of", "media_of"]

KINDS: Final = {"image": "image", "audio": "audio", "resource": "embeddedContext"}
"""The capability that a content block of a type needs."""
_SAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_BACKTICKS: Final = re.compile(r"`+")


@attrs.frozen
class Media:
    """Binary content of a block."""

    name: str
    """A name for the file."""
    type: str | None
    """The MIME type."""
    data: bytes
    source: str | None
    """The URI that the client names."""


@attrs.frozen
class Given:
    """The block that the agent got in place of another, without the content: enough to restore the
    original."""

    block: dict[str, Any]
    """Without its content."""
    member: str
    """The member of the content: `data`, `blob` or `text`."""
    file: Path | None = None
    """The file with the content, of a link."""
    size: int = 0
    """Bytes of the file."""
    within: slice = slice(None)
    """The part of the text that is the content, of a text."""

    @classmethod
    def of(cls, block: dict[str, Any], member: str, **where: Any) -> Given:
        return cls(_with_content(block, member, None), member, **where)

    def original(self, echoed: dict[str, Any]) -> dict[str, Any]:
        """The block as the client has sent it. Raises `OSError` if the file is gone or another."""
        if self.file is None:
            return _with_content(self.block, self.member, echoed["text"][self.within])
        content = base64.b64encode(read_own(self.file, self.size)).decode()
        return _with_content(self.block, self.member, content)


def key_of(block: Any) -> str | None:
    """Key that recognizes a text or a link when the agent echoes it."""
    type = block.get("type") if isinstance(block, dict) else None
    value = block.get({"text": "text", "resource_link": "uri"}.get(type, "")) if type else None
    if not isinstance(value, str):
        return None
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()


def kind_of(block: Any) -> str | None:
    """The capability that a content block needs; `None` if every agent takes it."""
    type = block.get("type") if isinstance(block, dict) else None
    return KINDS.get(type) if isinstance(type, str) else None


def media_of(block: dict[str, Any]) -> Media | None:
    """The binary content of a block; `None` if it has none. Raises `ValueError` if it is not
    base64."""
    holder, member = (block.get("resource"), "blob") if _embeds(block) else (block, "data")
    encoded = holder.get(member) if isinstance(holder, dict) else None
    if not isinstance(holder, dict) or not isinstance(encoded, str):
        return None
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise ValueError(f"it is not base64: {exc}") from None
    source, type = (_text(holder.get(name)) for name in ("uri", "mimeType"))
    name = _SAFE.sub("-", unquote(urlsplit(source or "").path).rpartition("/")[2]).strip("-.")
    suffix = mimetypes.guess_extension(type or "") or ""
    if "." not in name:
        name = (name or str(block["type"])) + suffix
    return Media(name[-80:], type, data, source)


def as_link(block: dict[str, Any], media: Media, file: Path) -> tuple[dict[str, Any], Given]:
    """A link to the file that has the content of a block."""
    link = {name: value for name, value in block.items() if name in ("annotations", "_meta")}
    link |= {"type": "resource_link", "uri": file.as_uri(), "name": media.name}
    if media.type is not None:
        link["mimeType"] = media.type
    if media.source is not None:
        link["description"] = f"Content of {media.source}"
    given = Given.of(block, "blob" if _embeds(block) else "data", file=file, size=len(media.data))
    return {**link, "size": len(media.data)}, given


def as_text(block: dict[str, Any]) -> tuple[dict[str, Any], Given] | None:
    """A text with an embedded text and its URI; `None` if the block has no text."""
    resource = block.get("resource")
    content = resource.get("text") if isinstance(resource, dict) else None
    if not isinstance(resource, dict) or not isinstance(content, str):
        return None
    fence = "`" * max(3, *(len(found) + 1 for found in ("", *_BACKTICKS.findall(content))))
    head = f"{resource.get('uri')}\n{fence}\n"
    end = "" if content.endswith("\n") else "\n"
    given = Given.of(block, "text", within=slice(len(head), len(head) + len(content)))
    kept = {name: value for name, value in block.items() if name in ("annotations", "_meta")}
    return {**kept, "type": "text", "text": f"{head}{content}{end}{fence}"}, given


def _embeds(block: dict[str, Any]) -> bool:
    return block.get("type") == "resource"


def _with_content(block: dict[str, Any], member: str, content: str | None) -> dict[str, Any]:
    """The block with this content in its place; the place is kept, so is the order of members."""
    if _embeds(block):
        return {**block, "resource": {**block["resource"], member: content}}
    return {**block, member: content}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
