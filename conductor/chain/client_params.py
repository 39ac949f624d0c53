"""The `initialize` of the client for which components are made, for conditions on components."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

__all__ = ["client_params"]

client_params: Final[ContextVar[bytes | None]] = ContextVar("initialize params", default=None)
"""Raw params; set by a chain while it calls `make`."""
