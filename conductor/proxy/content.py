"""`text()`: a text as a content block, for prompts and updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conductor.schema.v1 import TextContent

__all__ = ["text"]


def text(text: str) -> TextContent:
    """Return a text block for prompts and updates, in typed messages and in plain params."""
    from conductor.schema.v1 import TextContent  # lazy: importing the schema types is slow

    return TextContent(text=text)
