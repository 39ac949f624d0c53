"""Entries that `install` wrote into editors' files."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

import attrs

from conductor.cli.doctor.finding import Finding
from conductor.cli.install.config_file import ConfigFileError
from conductor.cli.install.records import InstalledFile, Records
from conductor.files import read_regular

__all__ = ["EditorFile", "editor_findings", "gather_editors"]


@attrs.frozen
class EditorFile:
    """A file that `install` changed."""

    editor: str
    path: str
    entries: tuple[str, ...]
    state: Literal["as written", "changed", "missing"]
    gone: tuple[str, ...] = ()
    """Programs and chain files that the entries start and that do not exist."""


def gather_editors() -> list[EditorFile] | str:
    """The files, or why the records about them cannot be read."""
    try:
        records = Records.load()
    except ConfigFileError as exc:
        return str(exc)
    return [
        EditorFile(
            each.editor,
            each.path,
            tuple(each.entries),
            _state(each.target, each.digest),
            tuple(path for path in _started(each) if not os.path.exists(path)),
        )
        for each in records.files.values()
    ]


def editor_findings(files: list[EditorFile] | str) -> Iterator[Finding]:
    if isinstance(files, str):
        yield Finding("error", "editors", files)
        return
    if not files:
        help = "`acp-conductor install EDITOR --chain FILE --write` writes one"
        yield Finding("ok", "editors", "no entries of `install`", help)
    for file in files:
        names = ", ".join(file.entries) or "no entries"
        if file.state == "missing":
            message = f"{file.path} of {file.editor} is gone, with {names}"
            help = f"`acp-conductor install {file.editor} … --write` writes the entry again"
            yield Finding("warning", "editors", message, help)
        elif file.gone:
            gone = ", ".join(file.gone)
            message = f"{file.editor}: {names} in {file.path} starts what is not there: {gone}"
            help = f"`acp-conductor uninstall {file.editor}`, then `install` with the present path"
            yield Finding("error", "editors", message, help)
        else:
            changed = "; changed since" if file.state == "changed" else ""
            yield Finding("ok", "editors", f"{file.editor}: {names} in {file.path}{changed}")


def _started(file: InstalledFile) -> Iterator[str]:
    """The absolute paths of the program and the chain file in entries of JSON settings."""
    for entry in file.entries.values():
        for edit in entry.edits:
            value = edit.value if isinstance(edit.value, dict) else {"command": edit.value}
            command, args = value.get("command"), value.get("args")
            if not isinstance(command, str):
                continue
            words = [command, *args] if isinstance(args, list) else _words(command)
            found = words[:1]
            found += [word for before, word in pairwise(words) if before in ("run", "--chain")]
            yield from (word for word in found if os.path.isabs(word))


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _state(path: str, digest: str) -> Literal["as written", "changed", "missing"]:
    try:
        data = read_regular(path)
    except OSError:
        return "missing"
    return "as written" if hashlib.sha256(data).hexdigest() == digest else "changed"
