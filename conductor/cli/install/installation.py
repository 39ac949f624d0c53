"""Put an entry into an editor's file, and take entries out again.

`uninstall` restores the file to the byte if it is as `install` has left it; else it removes only
the entries, by their text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from conductor.chainfile.diagnostics import Diagnostic
from conductor.chainfile.source_location import SourceLocation, SourceText
from conductor.cli.install.config_file import (
    ConfigFile,
    ConfigFileError,
    delete_config,
    missing_directories,
    read_config,
    remove_empty,
    write_config,
)
from conductor.cli.install.formats import ConfigFormat, FormatError, Launch
from conductor.cli.install.records import InstalledEntry, InstalledFile, Records

__all__ = ["Change", "install", "preview", "uninstall"]

Change: TypeAlias = Literal["written", "unchanged", "restored", "removed", "deleted"]


def preview(path: Path, format: ConfigFormat, launch: Launch, records: Records) -> str:
    """The text to insert into the file by hand. Raises `ConfigFileError`."""
    file = read_config(path)
    try:
        return format.snippet(_without(file, format, launch, records), launch)
    except FormatError as exc:
        raise ConfigFileError(_describe(file, file.text, exc)) from None


def install(
    editor: str, path: Path, format: ConfigFormat, launch: Launch, records: Records
) -> tuple[Change, Path | None]:
    """Write the entry; returns what was done and the backup. Raises `ConfigFileError`.

    An entry of the same name that `install` has written is replaced.
    """
    file = read_config(path)
    known = records.files.get(str(file.target))
    before = _without(file, format, launch, records)
    try:
        text, edits = format.install(before, launch)
    except FormatError as exc:
        raise ConfigFileError(_describe(file, before, exc)) from None
    if text == file.text and file.data is not None:
        return "unchanged", None
    made = missing_directories(file.target)
    backup = None if file.data is None else records.keep_backup(file.target, file.data)
    write_config(file, text.encode())
    if known is None:
        known = InstalledFile(editor, str(path), str(file.target), backup, "", directories=made)
        records.files[str(file.target)] = known
    elif file.digest != known.digest:
        known.intact = False
    entry = InstalledEntry(_entry_name(launch), tuple(edits))
    known.entries[entry.name] = entry
    known.digest = read_config(path).digest or ""
    records.save()
    return "written", None if backup is None else records.directory / backup


def uninstall(
    known: InstalledFile, names: list[str], format: ConfigFormat, records: Records
) -> Change:
    """Take entries out of a file. Raises `ConfigFileError`."""
    file = read_config(Path(known.path))
    is_last = set(names) == set(known.entries)
    change: Change = "removed"
    if file.data is None:
        pass
    elif is_last and known.intact and file.digest == known.digest:
        change = _restore(file, known, records)
    else:
        text: str | None = file.text
        for name in reversed(names):
            text = _removed(file, text or "", format, known.entries[name])
        if text is None:
            records.keep_backup(file.target, file.data)
            delete_config(file)
            change = "deleted"
        else:
            write_config(file, text.encode())
    for name in names:
        del known.entries[name]
    if change == "deleted":
        remove_empty(known.directories)
        records.pass_on_directories(known)
    if known.entries:
        if known.digest == file.digest:
            known.digest = read_config(Path(known.path)).digest or ""
    else:
        del records.files[known.target]
    records.save()
    return change


def _restore(file: ConfigFile, known: InstalledFile, records: Records) -> Change:
    if known.backup is None:
        delete_config(file)
        return "deleted"
    data = records.read_backup(known.backup)
    if data is None:
        raise ConfigFileError(f"the backup {records.directory / known.backup} is missing")
    write_config(file, data)
    records.drop_backups(file.target)
    return "restored"


def _without(file: ConfigFile, format: ConfigFormat, launch: Launch, records: Records) -> str:
    """The text of the file without the entry that `install` has written under this name."""
    known = records.files.get(str(file.target))
    entry = known.entries.get(_entry_name(launch)) if known is not None else None
    if entry is None or not file.text:
        return file.text
    return _removed(file, file.text, format, entry) or ""


def _removed(
    file: ConfigFile, text: str, format: ConfigFormat, entry: InstalledEntry
) -> str | None:
    try:
        return format.uninstall(text, entry.name, entry.edits)
    except FormatError as exc:
        raise ConfigFileError(_describe(file, text, exc)) from None


def _entry_name(launch: Launch) -> str:
    return launch.wrapped or launch.name


def _describe(file: ConfigFile, text: str, error: FormatError) -> str:
    path = str(file.path)
    location = SourceLocation.whole(path)
    if error.index is not None:
        location = SourceText(path, text).location(error.index, error.index + 1)
    return str(Diagnostic(location, str(error), help=error.help))
