"""Notices and terminals as text, for a client that cannot show them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["console_text", "exit_text", "notice_text"]


def console_text(command: str, output: str, ending: str, *, is_cut: bool) -> str:
    """A command, its output and how it ended, as a block of Markdown."""
    lines = [f"$ {command}"] if command else []
    lines += ["…"] if is_cut else []
    lines += [output.rstrip("\n")] if output else []
    lines += [ending] if ending else []
    text = "\n".join(lines)
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}console\n{text}\n{fence}"


def exit_text(code: object, signal: object) -> str:
    """How a command ended, in brackets."""
    return f"[ended by {signal}]" if signal else f"[exit code {code}]"


def notice_text(notice: Mapping[str, Any]) -> str:
    """`[warning: title: description]`, a paragraph; information has no severity."""
    severity = notice.get("severity")
    parts = (notice.get("title"), notice.get("description"))
    text = ": ".join(str(part) for part in parts if part)
    prefix = "" if severity in (None, "info") else f"{severity}: "
    return f"\n\n[{prefix}{text}]\n\n"
