"""Records of the entries that `install` wrote, and backups of the original files, for `uninstall`.

`editors.json` in the user's state directory, and the backups beside it, are readable by the user
only: settings of editors may contain secrets.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import cattrs

from conductor.cli.install.config_file import ConfigFileError, remove_empty
from conductor.cli.install.formats import Edit
from conductor.files import read_own, replacing
from conductor.places import state_directory

__all__ = ["InstalledEntry", "InstalledFile", "Records"]


@attrs.frozen
class InstalledEntry:
    name: str
    edits: tuple[Edit, ...] = ()


@attrs.define
class InstalledFile:
    """A file with entries of `install`.

    `backup` names the copy of the file as it was before the first of these entries, `None` if the
    file did not exist. `digest` is the SHA-256 of the file as last written.
    """

    editor: str
    path: str
    target: str
    backup: str | None
    digest: str
    intact: bool = True
    """Whether only `install` has changed the file since the backup."""
    entries: dict[str, InstalledEntry] = attrs.field(factory=dict)
    directories: tuple[str, ...] = ()
    """Directories that were made for the file, the innermost first."""


@attrs.define
class Records:
    directory: Path
    files: dict[str, InstalledFile] = attrs.field(factory=dict)
    """By the path of the file, symbolic links resolved."""

    @classmethod
    def load(cls) -> Records:
        """Raises `ConfigFileError`."""
        records = cls(Path(state_directory(), "editors"))
        try:
            data = json.loads(read_own(records._file))
            records.files = _converter().structure(data["files"], dict[str, InstalledFile])
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, cattrs.BaseValidationError) as exc:
            raise ConfigFileError(f"{records._file} cannot be read: {exc}; delete it") from None
        return records

    @property
    def _file(self) -> Path:
        return self.directory / "editors.json"

    def save(self) -> None:
        """Raises `ConfigFileError`."""
        if not self.files and self._remove():
            return
        data = {"version": 1, "files": _converter().unstructure(self.files)}
        self._write(self._file, json.dumps(data, indent=1).encode())

    def _remove(self) -> bool:
        """Delete the records and their directory, unless backups are left; whether none are."""
        if any(path != self._file for path in self.directory.glob("*")):
            return False
        with suppress(OSError):
            self._file.unlink(missing_ok=True)
        remove_empty((self.directory, self.directory.parent))
        return True

    def keep_backup(self, target: Path, data: bytes) -> str:
        """Store a copy; returns its name. Equal copies of a file are stored once."""
        name = f"{_backup_prefix(target)}{hashlib.sha256(data).hexdigest()[:12]}"
        self._write(self.directory / name, data)
        return name

    def read_backup(self, name: str) -> bytes | None:
        try:
            return read_own(self.directory / name)
        except OSError:
            return None

    def drop_backups(self, target: Path) -> None:
        """Delete all copies of a file."""
        prefix = _backup_prefix(target)
        for path in self.directory.iterdir():
            if path.name.startswith(prefix):
                path.unlink(missing_ok=True)

    def of(self, editor: str, target: Path | None) -> Iterator[InstalledFile]:
        for file in list(self.files.values()):
            if file.editor == editor and target in (None, Path(file.target)):
                yield file

    def pass_on_directories(self, deleted: InstalledFile) -> None:
        """Record directories made for a deleted file with the other files in them."""
        left = [each for each in deleted.directories if os.path.isdir(each)]
        for other in self.files.values():
            around = {str(each) for each in Path(other.target).parents} - {*other.directories}
            if other is not deleted:
                other.directories += tuple(each for each in left if each in around)

    def _write(self, path: Path, data: bytes) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            with replacing(path) as file:
                file.write(data)
        except OSError as exc:
            raise ConfigFileError(f"{path} cannot be written: {exc.strerror}") from None


def _backup_prefix(target: Path) -> str:
    return f"{target.name}.{hashlib.sha256(os.fsencode(target)).hexdigest()[:8]}."


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter()
    converter.register_structure_hook_func(lambda kind: kind is Any, lambda value, _: value)
    return converter
