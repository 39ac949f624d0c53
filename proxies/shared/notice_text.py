"""A notice as a text of the agent. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["notice_text"]


def notice_text(notice: Mapping[str, Any]) -> str:
    """`[warning: title: description]`, a paragraph; information has no severity."""
    severity = notice.get("severity")
    parts = (notice.get("title"), notice.get("description"))
    text = ": ".join(str(part) for part in parts if part)
    prefix = "" if severity in (None, "info") else f"{severity}: "
    return f"\n\n[{prefix}{text}]\n\n"
