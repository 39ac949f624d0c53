"""The reason why a chain ended: from `Chain.run` to its owner, for the exit code."""

from __future__ import annotations

from typing import Literal

import msgspec

from conductor.errors import ComponentError

__all__ = ["Ending"]


class Ending(msgspec.Struct, frozen=True):
    """The reason why a chain ended."""

    reason: Literal["client", "stopped", "failed", "never started"]
    """"never started": the client sent `initialize`, but no start succeeded."""
    error: ComponentError | None = None
