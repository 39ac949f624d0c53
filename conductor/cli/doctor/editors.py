"""Entries that `install` wrote into editors' files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import attrs

from conductor.cli.doctor.finding import Finding
from conductor.cli.install.config_file import ConfigFileError
from conductor.cli.install.records import Records

__all__ = ["EditorFile", "editor_findings", "gather_editors"]


@attrs.frozen
class EditorFile:
    """A file that `install` changed."""

    editor: str
    path: str
    entries: tuple[str, ...]
    state: Literal["as written", "changed", "missing"]


def gather_editors() -> list[EditorFile] | str:
    """The files, or why the records about them cannot be read."""
    try:
        records = Records.load()
    except ConfigFileError as exc:
        return str(exc)
    return [
        EditorFile(each.editor, each.path, tuple(each.entries), _state(each.target, each.digest))
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
        else:
            changed = "; changed since" if file.state == "changed" else ""
            yield Finding("ok", "editors", f"{file.editor}: {names} in {file.path}{changed}")


def _state(path: str, digest: str) -> Literal["as written", "changed", "missing"]:
    try:
        data = Path(path).read_bytes()
    except OSError:
        return "missing"
    return "as written" if hashlib.sha256(data).hexdigest() == digest else "changed"
