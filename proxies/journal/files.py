"""Sessions in files: one file of JSON lines for each, mode 0600, in a private directory.

The first line has id, directories and time of the session; others are appended: the id of the
agent's session, titles, prompts, updates. If a file grows beyond `max_bytes`, its oldest turns are
left out until half of that remains; of more than `max_sessions` files, the oldest are removed.

Several processes may have one session open: each change is made under a lock of its file, and fails
if another process keeps it. A line that a crash or a full disk has cut is left out when the file is
read.
"""

from __future__ import annotations

import datetime
import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import quote

import attrs

from conductor.files import lock_file, open_own
from conductor.json_values import decode_loosely

__all__ = ["JournalFiles", "KeptSession", "agent_directory", "masker"]

_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_PATIENCE: Final = 0.5
"""Seconds to wait for the lock of a file; nothing else runs then. After a failed wait, none."""
_EDGE: Final = 65536
"""Bytes at both ends of a file in which a title is looked for."""
_SHORT: Final = 1000
"""Characters of a string that is kept of an update that is too large."""


@attrs.frozen
class KeptSession:
    """Summary of a session's file."""

    id: str
    cwd: str
    additional_directories: list[str]
    updated: str
    title: str | None = None
    agent_session: str | None = None
    """The id of the newest session of the agent for it."""
    is_prompted: bool = False
    """Whether that had a prompt."""
    is_cut: bool = False
    """Whether older turns were left out."""
    records: list[dict[str, Any]] = attrs.field(factory=list)
    """The prompts and updates, in order."""

    def info(self) -> dict[str, Any]:
        """The entry in an answer to `session/list`."""
        info = {"sessionId": self.id, "cwd": self.cwd, "title": self.title}
        info["updatedAt"] = self.updated
        directories = {"additionalDirectories": self.additional_directories}
        return {**info, **directories} if self.additional_directories else info


@attrs.define
class JournalFiles:
    """The files of one agent's sessions."""

    directory: Path
    max_bytes: int
    max_sessions: int
    mask: Callable[[str], str]
    """Replaces secrets in a text."""
    _patience: float = attrs.field(default=_PATIENCE, init=False)

    def create(self, id: str, cwd: str, directories: list[str]) -> bool:
        """Make the file of a new session; `False` if there is one of this id."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room()
        try:
            descriptor = open_own(self._path(id), _CREATE)
        except FileExistsError:
            return False
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        header = {"session": id, "cwd": cwd, "directories": directories, "created": now}
        with os.fdopen(descriptor, "wb") as file:
            file.write(_line(header))
        return True

    def append(self, id: str, record: Mapping[str, Any]) -> None:
        """Add a record. Nothing happens if the file was removed. Raises `OSError`."""
        line = self._masked(record)
        if len(line) > self.max_bytes // 16:
            line = self._masked(_shortened(record, len(line)))
        with self._locked(id) as file:
            if file is None:
                return
            file.write(line if _has_whole_lines(file) else b"\n" + line)
            file.flush()
            if os.fstat(file.fileno()).st_size > self.max_bytes:
                self._drop_oldest(file)

    def copy(self, records: Iterable[Mapping[str, Any]], id: str) -> None:
        """Add the records of another session, as its file has them. Raises `OSError`."""
        with self._locked(id) as file:
            if file is not None:
                file.write(b"".join(map(_line, records)))

    def read(self, id: str) -> KeptSession | None:
        """Everything about a session; `None` if it has no file. Raises `OSError`."""
        path = self._path(id)
        try:
            with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
                return _kept(path, file.read())
        except FileNotFoundError:
            return None

    def sessions(self) -> list[KeptSession]:
        """All sessions with a prompt, without their records, the newest first."""
        paths = self.directory.glob("*.jsonl")
        found = [kept for path in paths if (kept := _summary(path)) is not None and kept.title]
        return sorted(found, key=lambda kept: kept.updated, reverse=True)

    def delete(self, id: str) -> bool:
        """Remove the file of a session; returns whether there was one. Raises `OSError`."""
        with self._locked(id) as file:
            self._path(id).unlink(missing_ok=True)
            return file is not None

    def delete_if_empty(self, id: str) -> None:
        """Remove the file of a session that had no prompt."""
        kept = self.read(id)
        if kept is not None and not kept.records:
            self.delete(id)

    # ----------------------------------------------------------------------------------------------

    def _path(self, id: str) -> Path:
        name = hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return self.directory / f"{name}.jsonl"

    @contextmanager
    def _locked(self, id: str) -> Iterator[BinaryIO | None]:
        """Open a file at its end, while no other process changes it; `None` if there is none."""
        try:
            descriptor = open_own(self._path(id), os.O_RDWR)
        except FileNotFoundError:
            yield None
            return
        with os.fdopen(descriptor, "r+b") as file:
            self._lock(descriptor)
            file.seek(0, os.SEEK_END)
            yield file

    def _lock(self, descriptor: int) -> None:
        try:
            lock_file(descriptor, self._patience)
        except BlockingIOError:
            self._patience = 0.0
            raise
        self._patience = _PATIENCE

    def _masked(self, record: Mapping[str, Any]) -> bytes:
        return _line({name: self._without_secrets(value) for name, value in record.items()})

    def _without_secrets(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, list):
            return [self._without_secrets(each) for each in value]
        if isinstance(value, dict):
            return {name: self._without_secrets(each) for name, each in value.items()}
        return value

    def _make_room(self) -> None:
        if self.directory.is_symlink():  # an agent may have made it: other files would be removed
            raise NotADirectoryError(errno.ENOTDIR, "it is a symbolic link", str(self.directory))
        paths = list(self.directory.glob("*.jsonl"))
        if len(paths) >= self.max_sessions:
            paths.sort(key=_modified)
            for path in paths[: len(paths) - self.max_sessions + 1]:
                path.unlink(missing_ok=True)

    def _drop_oldest(self, file: BinaryIO) -> None:
        """Leave out the oldest turns; of a turn that is too large itself, the oldest updates."""
        content = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
        header, *lines = content.splitlines(keepends=True)
        first, size = len(lines), len(header)
        while first and size + len(lines[first - 1]) <= self.max_bytes // 2:
            first -= 1
            size += len(lines[first])
        turns = [index for index in range(first, len(lines)) if _has(lines[index], "prompt")]
        first = turns[0] if turns else first
        state = [_last(lines[:first], member) for member in ("agent_session", "title")]
        kept = [header, *state, _line({"cut": True}), *lines[first:]]
        file.seek(0)
        file.write(b"".join(kept))
        file.truncate()  # only now: a crash before it must not lose the session


def agent_directory(parent: Path | None, agent: str) -> Path:
    """The directory for the sessions of an agent, by the name that it gives; `parent` is that for
    all agents, by default in the state directory."""
    from platformdirs import user_state_path

    parent = parent or user_state_path("acp-conductor", appauthor=False) / "journal"
    name = quote(agent[:80], safe=" @", errors="replace")
    return parent / (name if name.strip(".") else name.replace(".", "%2E"))  # `..` is another one


def masker() -> Callable[[str], str]:
    """Replaces secrets that are known by their form."""
    from conductor.secrets.finder import PATTERNS, SecretFinder  # lazy: RE2

    return SecretFinder(PATTERNS, {}).redact


def _has_whole_lines(file: BinaryIO) -> bool:
    """Whether the last line has its end."""
    size = os.fstat(file.fileno()).st_size
    return size == 0 or os.pread(file.fileno(), 1, size - 1) == b"\n"


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _has(line: bytes, member: str) -> bool:
    """Whether a line is a record of this kind, its first member."""
    return line.startswith(f'{{"{member}":'.encode())


def _last(lines: list[bytes], member: str) -> bytes:
    return next((line for line in reversed(lines) if _has(line, member)), b"")


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0


def _records(content: bytes) -> Iterator[dict[str, Any]]:
    """The records of the lines; a line that a crash has cut is left out."""
    for line in content.splitlines():
        try:
            record = decode_loosely(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def _summary(path: Path) -> KeptSession | None:
    """The summary, read from both ends of the file."""
    try:
        with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
            content = file.read(_EDGE)
            file.seek(max(_EDGE, path.stat().st_size - _EDGE))
            return _kept(path, content + b"\n" + file.read())
    except OSError:
        return None


def _kept(path: Path, content: bytes) -> KeptSession | None:
    records = list(_records(content))
    head = records.pop(0) if records else {}
    if not isinstance(head.get("session"), str):
        return None
    changed = datetime.datetime.fromtimestamp(_modified(path), datetime.UTC)
    found: dict[str, Any] = {}
    is_prompted = False
    for record in records:
        found |= record
        is_prompted = "prompt" in record or (is_prompted and "agent_session" not in record)
    return KeptSession(
        id=head["session"],
        cwd=str(head.get("cwd") or ""),
        additional_directories=list(head.get("directories") or ()),
        updated=changed.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        title=found.get("title"),
        agent_session=found.get("agent_session"),
        is_prompted=is_prompted,
        is_cut="cut" in found,
        records=[each for each in records if "prompt" in each or "update" in each],
    )


def _shortened(record: Mapping[str, Any], size: int) -> dict[str, Any]:
    """A record without what is large: the short members of an update, a prompt's first text."""
    left_out = {"type": "text", "text": f"[{size} bytes are not in the journal]"}
    if "update" not in record:
        return {"prompt": [left_out]}
    update = record["update"]
    short = {
        name: value
        for name, value in update.items()
        if isinstance(value, str) and len(value) <= _SHORT
    }
    is_chunk = str(update.get("sessionUpdate")).endswith("_chunk")
    return {"update": {**short, "content": left_out} if is_chunk else short}
