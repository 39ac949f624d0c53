"""Exit codes of `prompt` by the stop reason of its last turn. Pure."""

from __future__ import annotations

from typing import Final

__all__ = ["exit_code_of"]

_CODES: Final = {
    "end_turn": 0,
    "refusal": 10,
    "max_tokens": 11,
    "max_turn_requests": 12,
    "cancelled": 13,
    "error": 1,
}
_OTHER: Final = 14


def exit_code_of(stop_reason: object) -> int:
    """The exit code for a stop reason; an unknown one has a code too."""
    return _CODES.get(stop_reason, _OTHER) if isinstance(stop_reason, str) else _OTHER
