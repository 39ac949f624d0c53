"""The history of prompts: a file of mode 0600 in the user's state directory, of limited size."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

__all__ = ["history_path", "open_history"]

_MAX_BYTES: Final = 1024 * 1024
_ENTRY: Final = b"\n# "
"""The start of an entry, a comment with its time."""


def history_path() -> Path:
    """The file; it need not exist."""
    from platformdirs import user_state_path

    return user_state_path("acp-conductor", appauthor=False) / "chat-history"


def open_history(path: Path) -> History:
    """The history in a file, created if it is missing; in memory if that is not possible."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return InMemoryHistory()
    with os.fdopen(fd, "r+b") as file:
        os.fchmod(fd, 0o600)
        _shorten(file.read(), file.fileno())
    return _PromptHistory(str(path))


def _shorten(content: bytes, fd: int) -> None:
    """Keep the last half of a file that is too large."""
    if len(content) <= _MAX_BYTES:
        return
    start = content.find(_ENTRY, len(content) - _MAX_BYTES // 2)
    kept = content[start:] if start >= 0 else b""
    os.pwrite(fd, kept, 0)
    os.ftruncate(fd, len(kept))


class _PromptHistory(FileHistory):
    """Leaves out prompts that begin with a space."""

    def store_string(self, string: str) -> None:
        if string[:1] != " ":
            super().store_string(string)
