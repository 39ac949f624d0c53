"""Links in a tar archive: none leads out of the directory, and nothing is written through one.

`tarfile`'s data filter resolves links with `realpath`, which gives up at paths that are too long:
in Python before 3.11.13, 3.12.11 and 3.13.4 a chain of links leads out (CVE-2025-4517). Here no
path is resolved, so that there is nothing to deceive.
"""

from __future__ import annotations

import os
import stat
import tarfile
from pathlib import Path, PurePosixPath

from conductor.errors import RegistryError

__all__ = ["check_links"]


def check_links(directory: Path, member: tarfile.TarInfo) -> None:
    """Raise `RegistryError` unless a member that the data filter accepts can be extracted.

    No part of its path may be a link. As this holds for each member, a link leads out of the
    directory only if it begins with more `..` than its path has parents, or has `..` behind a name.
    """
    path = PurePosixPath(member.name.lstrip("/"))
    if ".." in path.parts or _has_link(directory, path):
        raise RegistryError(f"the archive writes through a link: {member.name!r}")
    if member.issym():
        target = PurePosixPath(member.linkname)
        parts = target.parts
        up = next((n for n, part in enumerate(parts) if part != ".."), len(parts))
        if up >= len(path.parts) or ".." in parts[up:] or target.is_absolute():
            raise RegistryError(f"the archive has a link that may lead out: {member.name!r}")
    if member.islnk():
        target = PurePosixPath(member.linkname)
        if ".." in target.parts or _has_link(directory, target) or not _is_file(directory / target):
            raise RegistryError(f"the archive has a link to no file of it: {member.name!r}")


def _has_link(directory: Path, inner: PurePosixPath) -> bool:
    """Whether a part of a path in the directory is a symbolic link."""
    place = os.fspath(directory)
    for part in inner.parts:
        place = os.path.join(place, part)
        try:
            found = os.lstat(place)
        except FileNotFoundError:
            return False
        if stat.S_ISLNK(found.st_mode):
            return True
    return False


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False
