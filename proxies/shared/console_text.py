"""A terminal as text, for a client that cannot show one. Pure."""

from __future__ import annotations

__all__ = ["console_text", "exit_text"]


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
