"""What authors put into messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conductor.schema.v1 import TextContent

__all__ = ["text"]


def text(text: str) -> TextContent:
    """A text block, for prompts and updates; in typed messages and in plain params alike."""
    from conductor.schema.v1 import TextContent  # the types take a moment to import

    return TextContent(text=text)
