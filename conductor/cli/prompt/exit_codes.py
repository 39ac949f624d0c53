"""Exit codes of `prompt` by the stop reason of its last turn. Pure."""

from __future__ import annotations

from typing import Final

from conductor.exit_codes import ExitCode

__all__ = ["exit_code_of"]

_CODES: Final = {
    "end_turn": ExitCode.DONE,
    "refusal": ExitCode.REFUSAL,
    "max_tokens": ExitCode.MAX_TOKENS,
    "max_turn_requests": ExitCode.MAX_TURN_REQUESTS,
    "cancelled": ExitCode.CANCELLED,
    "error": ExitCode.FAILED,
}


def exit_code_of(stop_reason: object) -> int:
    """The exit code for a stop reason; an unknown one has a code too."""
    known = _CODES.get(stop_reason) if isinstance(stop_reason, str) else None
    return ExitCode.OTHER_STOP_REASON if known is None else known
