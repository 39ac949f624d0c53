"""acp-conductor: run proxy chains of the Agent Client Protocol between any editor and any agent."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
