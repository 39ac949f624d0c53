"""Content of prompts as private files, by session: bounded, and deleted with the session.

A running proxy locks its directory; the next one removes the directories of killed ones.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from conductor.files import lock_file, open_own

__all__ = ["PromptFiles", "TooLarge"]

_NAME: Final = "session-"
_LOCK: Final = ".lock"
_PATIENCE: Final = 5.0
"""Seconds to wait for the lock of the parent, which the agent may keep."""


class TooLarge(Exception):
    """A content has more bytes than a session may have in files."""


@attrs.define(eq=False)
class _SessionFiles:
    directory: Path
    number: int = 0
    size: int = 0
    kept: deque[tuple[Path, int]] = attrs.field(factory=deque)
    """The oldest first, with their sizes."""


@attrs.define(eq=False)
class PromptFiles:
    """The files of one proxy. Its methods block: they write to disk, and raise `OSError`."""

    parent: Path
    """The directory for those of all proxies."""
    max_bytes: int
    """Limit for the files of one session."""
    _own: Path | None = attrs.field(default=None, init=False)
    _lock: int | None = attrs.field(default=None, init=False)
    _sessions: dict[str, _SessionFiles] = attrs.field(factory=dict, init=False)

    def write(self, session: str, name: str, content: bytes) -> Path:
        """Write a file with a name that ends with `name`, mode 0600. The oldest files of the
        session are removed to make room. Raises `TooLarge`."""
        if len(content) > self.max_bytes:
            raise TooLarge
        files = self._files_of(session)
        while files.size + len(content) > self.max_bytes:
            oldest, size = files.kept.popleft()
            oldest.unlink(missing_ok=True)
            files.size -= size
        files.number += 1
        path = files.directory / f"{files.number}-{name}"
        with os.fdopen(open_own(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(content)
        files.kept.append((path, len(content)))
        files.size += len(content)
        return path

    def delete(self, session: str) -> None:
        """Remove the files of a session."""
        if (files := self._sessions.pop(session, None)) is not None:
            shutil.rmtree(files.directory, ignore_errors=True)

    def close(self) -> None:
        """Remove the files of all sessions."""
        self._sessions.clear()
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)
            self._own = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # ----------------------------------------------------------------------------------------------

    def _files_of(self, session: str) -> _SessionFiles:
        found = self._sessions.get(session)
        if found is None:
            if self._own is None:
                self._own = self._open()
            directory = Path(tempfile.mkdtemp(prefix=_NAME, dir=self._own))
            found = self._sessions[session] = _SessionFiles(directory)
        return found

    def _open(self) -> Path:
        self.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Not through a link: directories are removed in it.
        parent = os.open(self.parent, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            lock_file(parent, _PATIENCE)  # no other removes the new one before it has a lock
            for name in os.listdir(parent):
                _remove_if_unused(parent, name)
            own = Path(tempfile.mkdtemp(dir=self.parent))
            self._lock = open_own(own / _LOCK, os.O_RDWR | os.O_CREAT)
            fcntl.flock(self._lock, fcntl.LOCK_SH)
        finally:
            os.close(parent)
        return own


def _remove_if_unused(parent: int, name: str) -> None:
    """Remove a directory with a lock that no process holds."""
    with suppress(OSError):
        descriptor = open_own(os.path.join(name, _LOCK), os.O_RDWR, dir_fd=parent)
        try:
            lock_file(descriptor, 0)
            shutil.rmtree(name, ignore_errors=True, dir_fd=parent)
        finally:
            os.close(descriptor)
