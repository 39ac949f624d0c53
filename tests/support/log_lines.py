"""Lines of the conductor's log that depend on the speed of the machine."""

from __future__ import annotations

from collections.abc import Iterable

_SLOW = (
    "component slow to start",
    "component slow to set up a session",
    "MCP server slow to start",
)


def without_slow_starts(lines: Iterable[str]) -> list[str]:
    """The lines but those that name what took more than two seconds to answer."""
    return [line for line in lines if not any(event in line for event in _SLOW)]
