"""The project files that this user trusts, with the SHA-256 of what they consist of.

One file of mode 0600 for each, in `trust/` of the state directory (0700), named by the hash of its
path: two conductors do not overwrite each other's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from conductor.files import replacing
from conductor.json_values import decode_value
from conductor.projects.own_file import UnsafeFile, read_own_file
from conductor.projects.places import trust_directory, trust_entry

__all__ = ["TrustedFile", "forget", "remember", "trusted_file", "trusted_files"]


class TrustedFile(msgspec.Struct, frozen=True):
    """A project's file as it was when the user said yes."""

    path: str
    """Absolute; symbolic links of its directory are resolved."""
    files: Mapping[str, str]
    """SHA-256 of the file and of the files that it refers to, by absolute path."""


def trusted_file(path: str) -> TrustedFile | None:
    """The entry for a project's file; `None` for one that was never trusted. An entry that is
    damaged, or that others can write, has no hashes, so that no content fits it."""
    try:
        data = read_own_file(trust_entry(path))
        found = decode_value(data, type=TrustedFile)
    except FileNotFoundError:
        return None
    except (UnsafeFile, msgspec.MsgspecError):
        return TrustedFile(path, {})
    return found if found.path == path else TrustedFile(path, {})


def trusted_files() -> list[TrustedFile]:
    """All entries, by path."""
    found = []
    try:
        names = os.listdir(trust_directory())
    except OSError:
        return []
    for name in names:
        try:
            data = read_own_file(os.path.join(trust_directory(), name))
            found.append(decode_value(data, type=TrustedFile))
        except (FileNotFoundError, UnsafeFile, msgspec.MsgspecError):
            continue
    return sorted(found, key=lambda entry: entry.path)


def remember(entry: TrustedFile) -> None:
    """Store an entry, in place of an older one for this path. Raises `OSError`."""
    os.makedirs(trust_directory(), mode=0o700, exist_ok=True)
    with replacing(trust_entry(entry.path)) as file:
        file.write(msgspec.json.encode(entry))


def forget(path: str) -> bool:
    """Remove the entry for a path; whether there was one. Raises `OSError`."""
    try:
        os.unlink(trust_entry(path))
    except FileNotFoundError:
        return False
    return True
