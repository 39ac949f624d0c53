from __future__ import annotations

from collections.abc import Callable
from typing import Any

_NOT_TEXT = frozenset({"type", "sessionUpdate", "mimeType", "data", "blob"})


def walk(value: Any, change: Callable[[str], str]) -> Any:
    """JSON with every text in it changed; ids, and data that is no text, stay as they are."""
    match value:
        case str():
            return change(value)
        case list():
            return [walk(item, change) for item in value]
        case dict():
            return {
                key: item if key in _NOT_TEXT or key.endswith("Id") else walk(item, change)
                for key, item in value.items()
            }
    return value
