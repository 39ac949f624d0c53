"""Read a project's chain file, with the hashes of all files that decide what it runs.

These are the file, the chain files that it nests, the Python files of its plugins (`use:
./x.py:Class`), and its lock file. Chain files are parsed from the very bytes that were hashed. With
the hashes that the user trusts, reading stops at the first file that differs: an untrusted file is
not parsed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Final

import attrs
import msgspec

from conductor.chainfile.diagnostics import Diagnostic
from conductor.chainfile.loader import UnreadableFile, load_and_diagnose
from conductor.chainfile.model import ChainFile
from conductor.chainfile.source_location import SourceLocation
from conductor.errors import ChainFileError
from conductor.projects.own_file import UnsafeFile, read_own_file

__all__ = [
    "ProjectFile",
    "Untrusted",
    "has_hashes",
    "not_trusted_yet",
    "read_project_file",
    "read_user_file",
]

_NO_FILE: Final = "-"
"""In place of the hash of a lock file that does not exist."""


class Untrusted(Exception):
    """A project's file must have no effect; the text is the reason, a clause without subject, with
    the path of another file only. `remedy`: what to do, if `trust` would refuse the file."""

    def __init__(self, reason: str, remedy: str | None = None) -> None:
        super().__init__(reason)
        self.remedy = remedy


class ProjectFile(msgspec.Struct, frozen=True):
    """A project's chain of proxies."""

    chain: ChainFile
    files: Mapping[str, str]
    """SHA-256 of its files by absolute path."""
    texts: Mapping[str, str] = {}
    """Its chain files by path, as they were read."""


@attrs.define(eq=False)
class _HashingReader:
    """Reads and hashes files; with `expected`, raises `Untrusted` for one with another hash."""

    project: str
    """The project's file, which errors do not name."""
    expected: Mapping[str, str] | None
    files: dict[str, str] = attrs.field(factory=dict)
    texts: dict[str, str] = attrs.field(factory=dict)

    def read(self, path: str) -> bytes:
        try:
            data = read_own_file(path)
        except UnsafeFile as exc:
            named = "" if path == self.project else f"{path}: "
            raise Untrusted(f"is not used: {named}{exc.reason}", exc.remedy) from None
        except FileNotFoundError:
            raise UnreadableFile("there is no such file") from None
        self.add(path, hashlib.sha256(data).hexdigest())
        self.texts[path] = data.decode(errors="replace")
        return data

    def add(self, path: str, digest: str) -> None:
        path = os.path.abspath(path)
        if self.expected is not None and self.expected.get(path) != digest:
            named = "" if path == self.project else f" ({path})"
            raise Untrusted(f"has changed since you trusted it{named}")
        self.files[path] = digest

    def add_file(self, path: str, *, optional: bool) -> None:
        try:
            self.read(path)
        except UnreadableFile:
            if not optional:
                raise Untrusted(f"is not used: there is no file {path}") from None
            self.add(path, _NO_FILE)


def read_project_file(
    path: str, environ: Mapping[str, str], expected: Mapping[str, str] | None = None
) -> ProjectFile:
    """Read a project's file; with `expected`, only if all its files have these hashes.

    Raises `Untrusted`, also for a file that others can change, and `ChainFileError` for mistakes.
    """
    reader = _HashingReader(path, expected)
    if expected is not None:  # before a nested file is opened: it contains the path
        try:
            reader.read(path)
        except UnreadableFile as exc:
            raise Untrusted(f"is not used: {exc}") from None
    chain, diagnostics = load_and_diagnose(path, environ, read=reader.read)
    if chain is None or diagnostics:
        raise ChainFileError(diagnostics)
    _refuse_agent(chain)
    texts = dict(reader.texts)
    for spec in chain.flat():
        if spec.use is not None and ".py:" in spec.use:
            reader.add_file(spec.use.rpartition(":")[0], optional=False)
        if spec.registry is not None:
            reader.add_file(spec.registry.lock, optional=True)
    return ProjectFile(chain, reader.files, texts)


def not_trusted_yet(path: str) -> Untrusted:
    """Why a project's file that is not trusted has no effect; one that `trust` refuses says so."""
    try:
        _HashingReader(path, None).read(path)
    except Untrusted as exc:
        return exc
    except UnreadableFile as exc:
        return Untrusted(f"is not used: {exc}")
    return Untrusted("is not trusted yet")


def has_hashes(files: Mapping[str, str]) -> bool:
    """Whether the files still have these hashes."""
    reader = _HashingReader("", files)
    try:
        for path, digest in files.items():
            reader.add_file(path, optional=digest == _NO_FILE)
    except Untrusted:
        return False
    return True


def read_user_file(path: str, environ: Mapping[str, str]) -> ChainFile:
    """The user's `chain.yaml`. Raises `ChainFileError`, also if others can change the file."""

    def read(path: str) -> bytes:
        try:
            return read_own_file(path, follows_links=True)
        except UnsafeFile as exc:
            raise UnreadableFile(str(exc)) from None
        except FileNotFoundError:
            raise UnreadableFile("there is no such file") from None

    chain, diagnostics = load_and_diagnose(path, environ, read=read)
    if chain is None or diagnostics:
        raise ChainFileError(diagnostics)
    _refuse_agent(chain)
    return chain


def _refuse_agent(chain: ChainFile) -> None:
    """Raise `ChainFileError` for a chain with an agent: only that of the command has one."""
    if chain.agent is not None:
        location = chain.agent.location or SourceLocation.whole(chain.path)
        message = "this file adds proxies to other chains, so it has no `agent:`"
        help = "take it out; the agent is that of the chain that the editor starts"
        raise ChainFileError([Diagnostic(location, message, help=help)])
