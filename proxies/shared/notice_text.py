"""A notice as a line of text. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["notice_text"]


def notice_text(notice: Mapping[str, Any]) -> str:
    """`[warning: title: description]`, with a line break; information has no severity."""
    severity = notice.get("severity")
    parts = (notice.get("title"), notice.get("description"))
    text = ": ".join(str(part) for part in parts if part)
    prefix = "" if severity in (None, "info") else f"{severity}: "
    return f"[{prefix}{text}]\n"
