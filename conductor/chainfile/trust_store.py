"""The project files that this user trusts, with the SHA-256 of what they consist of.

One file of mode 0600 for each, in `trust/` of the state directory (0700), named by the hash of its
path: two conductors do not overwrite each other's.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Mapping

import msgspec

from conductor.files import open_own, replacing
from conductor.json_values import decode_value
from conductor.places import trust_directory, trust_entry

__all__ = [
    "TrustedFile",
    "UnreadableFile",
    "UnsafeFile",
    "forget",
    "read_own_file",
    "remember",
    "trusted_file",
    "trusted_files",
]

MAX_BYTES = 256 * 1024
_REMEDIES = {errno.ELOOP: "put the file itself there", errno.EPERM: "copy it, or chown it"}


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
    except (UnsafeFile, msgspec.MsgspecError):
        return TrustedFile(path, {})
    except UnreadableFile:
        return None
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
        except (UnreadableFile, msgspec.MsgspecError):
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


class UnreadableFile(Exception):
    """A file cannot be read; the text is the reason, without the path."""


class UnsafeFile(UnreadableFile):
    """Others can decide what the file contains, or it is there and cannot be read; the text is the
    reason, and the remedy."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason
        self.remedy = remedy


def read_own_file(path: str) -> bytes:
    """The bytes of a regular file of this user, or of root, that others cannot write.

    Checked is the open file, so that another one cannot take its place. A pipe is not waited for.
    Raises `UnsafeFile`, and `UnreadableFile` if there is none.
    """
    try:
        descriptor = open_own(path, os.O_RDONLY)
    except FileNotFoundError:
        raise UnreadableFile("there is no such file") from None
    except OSError as exc:
        remedy = _REMEDIES.get(exc.errno or 0)
        why = exc.strerror if remedy else f"it cannot be read: {exc.strerror}"
        raise UnsafeFile(str(why), remedy or "put a file there that you can read") from None
    with os.fdopen(descriptor, "rb") as file:
        if os.fstat(descriptor).st_mode & stat.S_IWOTH:
            remedy = f"chmod go-w {shlex.quote(path)}"
            raise UnsafeFile("every user of this machine can change it", remedy)
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise UnsafeFile(f"it is longer than {MAX_BYTES // 1024} KiB", "make it shorter")
    return data
