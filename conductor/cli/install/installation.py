"""Put an entry into an editor's file, and take entries out again, by their text.

A file is replaced atomically and keeps its permission bits; a symbolic link to it stays. What it
was before is kept in the user's state directory, with the records of the entries (`editors.json`),
readable by the user only: settings of editors may contain secrets. If a file cannot be changed, a
`ConfigFileError` says why, and what to do.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, TypeAlias

import attrs
import msgspec

from conductor.chainfile.diagnostics import Diagnostic, SourceLocation, SourceText
from conductor.cli.install.formats import ConfigFormat, Edit, FormatError, Launch
from conductor.files import read_own, read_regular, replacing
from conductor.json_values import decode_value
from conductor.places import state_directory

__all__ = [
    "Change",
    "ConfigFileError",
    "InstalledFile",
    "Records",
    "install",
    "preview",
    "uninstall",
]

Change: TypeAlias = Literal["written", "unchanged", "removed", "deleted"]
_MAX_BYTES: Final = 16 * 1024 * 1024
_PRINTED: Final = "or run the command without --write and insert what it prints"


class ConfigFileError(Exception):
    """A configuration file cannot be used; the text is for the user."""


@attrs.define
class InstalledFile:
    """A file with entries of `install`."""

    editor: str
    path: str
    target: str
    """Where symbolic links lead."""
    is_new: bool
    """Whether the file did not exist before the first of the entries."""
    entries: dict[str, tuple[Edit, ...]] = attrs.field(factory=dict)
    """By the name of the agent."""


@attrs.define
class Records:
    """The files with entries of `install`, by the path of each, symbolic links resolved."""

    directory: Path
    files: dict[str, InstalledFile] = attrs.field(factory=dict)

    @classmethod
    def load(cls) -> Records:
        """Raises `ConfigFileError`."""
        records = cls(Path(state_directory(), "editors"))
        try:
            data = read_own(records._file)
            records.files = decode_value(data, type=dict[str, InstalledFile])
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError) as exc:
            raise ConfigFileError(f"{records._file} cannot be read: {exc}; delete it") from None
        return records

    @property
    def _file(self) -> Path:
        return self.directory / "editors.json"

    def save(self) -> None:
        """Raises `ConfigFileError`."""
        self._write(self._file, msgspec.json.format(msgspec.json.encode(self.files)))

    def keep_backup(self, file: _ConfigFile) -> Path:
        """Store what a file is before it is changed, in place of the last backup."""
        suffix = hashlib.sha256(os.fsencode(file.target)).hexdigest()[:8]
        backup = self.directory / f"{file.target.name}.{suffix}"
        self._write(backup, file.data or b"")
        return backup

    def of(self, editor: str, target: Path | None) -> Iterator[InstalledFile]:
        for file in list(self.files.values()):
            if file.editor == editor and target in (None, Path(file.target)):
                yield file

    def _write(self, path: Path, data: bytes) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            with replacing(path) as file:
                file.write(data)
        except OSError as exc:
            raise ConfigFileError(f"{path} cannot be written: {exc.strerror}") from None


def preview(path: Path, format: ConfigFormat, launch: Launch, records: Records) -> str:
    """The text to insert into the file by hand. Raises `ConfigFileError`."""
    file = _ConfigFile.read(path)
    with _located(file, before := _without(file, format, launch, records)):
        return format.snippet(before, launch)


def install(
    editor: str, path: Path, format: ConfigFormat, launch: Launch, records: Records
) -> tuple[Change, Path | None]:
    """Write the entry; returns what was done and the backup. Raises `ConfigFileError`.

    An entry of the same name that `install` has written is replaced.
    """
    file = _ConfigFile.read(path)
    with _located(file, before := _without(file, format, launch, records)):
        text, edits = format.install(before, launch)
    if text == file.text and file.data is not None:
        return "unchanged", None
    file.check_writable()
    backup = None if file.data is None else records.keep_backup(file)
    file.write(text)
    is_new = file.data is None
    known = InstalledFile(editor, str(path), str(file.target), is_new)
    known = records.files.setdefault(known.target, known)
    known.entries[_entry_name(launch)] = tuple(edits)
    records.save()
    return "written", backup


def uninstall(
    known: InstalledFile, names: list[str], format: ConfigFormat, records: Records
) -> Change:
    """Take entries out of a file. Raises `ConfigFileError`."""
    file = _ConfigFile.read(Path(known.path))
    change: Change = "removed"
    if file.data is not None:
        text: str | None = file.text
        for name in reversed(names):
            with _located(file, text or ""):
                text = format.uninstall(text or "", name, known.entries[name])
        file.check_writable()
        records.keep_backup(file)
        if text is None or (known.is_new and text.strip() == "{}"):
            file.target.unlink()
            change = "deleted"
        else:
            file.write(text)
    for name in names:
        del known.entries[name]
    if not known.entries:
        del records.files[known.target]
    records.save()
    return change


@attrs.frozen
class _ConfigFile:
    """A file as it was read; `target` is where symbolic links lead, `data` is `None` if missing."""

    path: Path
    target: Path
    data: bytes | None = None
    mode: int = 0o600

    @classmethod
    def read(cls, path: Path) -> _ConfigFile:
        """Raises `ConfigFileError`."""
        target = Path(os.path.realpath(path))
        try:
            data, found = read_regular(target, _MAX_BYTES), os.stat(target)
        except FileNotFoundError:
            return cls(path, target)
        except OSError as exc:
            raise ConfigFileError(f"{path} cannot be read: {exc.strerror}") from None
        return cls(path, target, data, stat.S_IMODE(found.st_mode))

    @property
    def text(self) -> str:
        """The content, "" if the file is missing. Raises `ConfigFileError` if it is not UTF-8."""
        try:
            return (self.data or b"").decode()
        except UnicodeDecodeError as exc:
            line = exc.object.count(b"\n", 0, exc.start) + 1
            byte = f"byte 0x{exc.object[exc.start]:02x}"
            raise ConfigFileError(
                f"{self.path}:{line}: {byte} is not UTF-8; save the file as UTF-8"
            ) from None

    def check_writable(self) -> None:
        """Raise `ConfigFileError` for a file that is read-only, as generated ones are."""
        if not self.mode & stat.S_IWUSR:
            linked = f" (a link to {self.target})" if self.target != self.path.absolute() else ""
            raise ConfigFileError(
                f"{self.path}{linked} is read-only: change what generates it, or make it writable "
                f"(chmod u+w), {_PRINTED}"
            )

    def write(self, text: str) -> None:
        """Replace the content, or create the file. Raises `ConfigFileError`."""
        try:
            self.target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self.target, self.mode) as new:
                new.write(text.encode())
        except OSError as exc:
            raise ConfigFileError(
                f"{self.path} cannot be written: {exc.strerror}; change that, {_PRINTED}"
            ) from None


def _without(file: _ConfigFile, format: ConfigFormat, launch: Launch, records: Records) -> str:
    """The text of the file without the entry that `install` has written under this name."""
    known, name = records.files.get(str(file.target)), _entry_name(launch)
    if known is None or name not in known.entries or not file.text:
        return file.text
    with _located(file, file.text):
        return format.uninstall(file.text, name, known.entries[name]) or ""


def _entry_name(launch: Launch) -> str:
    return launch.wrapped or launch.name


@contextmanager
def _located(file: _ConfigFile, text: str) -> Iterator[None]:
    """Raise the `ConfigFileError` of a `FormatError` of this text."""
    try:
        yield
    except FormatError as exc:
        path = str(file.path)
        location = SourceLocation.whole(path)
        if exc.index is not None:
            location = SourceText(path, text).location(exc.index, exc.index + 1)
        raise ConfigFileError(str(Diagnostic(location, str(exc), help=exc.help))) from None
