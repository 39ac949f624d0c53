"""Find and read the files that are put before prompts. Blocking.

A relative pattern is looked for in the session's directory, then in those above it, up to the root
of the project: the nearest directory in which it matches counts, as for agents that read AGENTS.md.
The root is the nearest directory with `.git`, or that with the project's chain file if it is
higher; without both, only the session's directory is searched. The search ends before the home
directory, `/`, another file system, and a directory of another owner, who could add texts there.

A file in these directories is read only if it lies below them with all links resolved: the
repository, or an agent in a sandbox, may have made a link to a private key.
"""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from conductor.directories import same_directory
from conductor.files import open_named, open_regular

__all__ = ["FoundFile", "found_files", "missing", "read_files", "search_path"]

_LEADS_OUT: Final = (
    "it is a link that leads out of the project; name the file it leads to, by its absolute path"
)
_ROOTS: Final = (".git", ".acp-conductor.yaml")


@attrs.frozen
class FoundFile:
    """A file, and its path from the session's directory."""

    name: str
    path: str


def search_path(cwd: str) -> list[str]:
    """The directories in which relative patterns are looked for, the nearest first; none if `cwd`
    cannot be a directory."""
    if not cwd or "\0" in cwd:
        return []
    above = list(_up(cwd))
    # Of each kind of root the nearest; the search goes up to the highest of them.
    ends = [_first(above, name) for name in _ROOTS]
    return [cwd, *above[1 : max(ends) + 1]]


def found_files(patterns: Sequence[str], cwd: str) -> list[FoundFile]:
    """The files that the patterns match, each once, in the order of the patterns."""
    directories = search_path(cwd)
    found = (file for pattern in patterns for file in _matching(pattern, directories))
    return list({file.path: file for file in found}.values())


def missing(patterns: Sequence[str], cwd: str) -> list[tuple[str, str]]:
    """The patterns that match no file, and why: a pattern may name something else."""
    directories = search_path(cwd)
    return [
        (pattern, _why_missing(pattern, cwd, directories))
        for pattern in patterns
        if not _matching(pattern, directories)
    ]


def read_files(patterns: Sequence[str], cwd: str, limit: int) -> list[tuple[str, bytes]]:
    """Name and content of each file that the patterns match; a byte more than `limit` if it is
    longer."""
    found, root = [], search_path(cwd)[-1:]
    for file in found_files(patterns, cwd):
        try:
            with os.fdopen(open_named(file.path, root), "rb") as opened:
                found.append((file.name, opened.read(limit + 1)))
        except OSError as exc:
            reason = _LEADS_OUT if exc.errno == errno.EXDEV else exc.strerror
            found.append((file.name, f"(cannot be read: {reason})".encode()))
    return found


def _matching(pattern: str, directories: Sequence[str]) -> list[FoundFile]:
    """The files in the nearest directory in which the pattern matches any."""
    for index, directory in enumerate(_searched(pattern, directories)):
        names = sorted(glob.glob(pattern, root_dir=directory, recursive=True))
        paths = [(name, os.path.join(directory, name)) for name in names]
        if found := [
            FoundFile(os.path.join(*[os.pardir] * index, name), path)
            for name, path in paths
            if os.path.isfile(path)
        ]:
            return found
    return []


def _why_missing(pattern: str, cwd: str, directories: Sequence[str]) -> str:
    for directory in _searched(pattern, directories):
        if os.path.lexists(path := os.path.join(directory, pattern)):
            try:
                os.close(open_regular(path))
            except OSError as exc:
                return f"cannot be read: {exc.strerror}"
    shown = cwd.replace("\0", "\\0") or "?"
    return f"matches no file in {shown}, or above it in the project"


def _searched(pattern: str, directories: Sequence[str]) -> Sequence[str]:
    """Absolute patterns, and those with `..`, are not looked for above the session's directory."""
    is_fixed = os.path.isabs(pattern) or os.pardir in pattern.split(os.sep)
    return directories[:1] if is_fixed else directories


def _up(directory: str) -> Iterator[str]:
    """A directory with links resolved, and those above it, as far as the search may go."""
    directory = os.path.realpath(directory)
    try:
        first = above = os.stat(directory)
        while (above.st_dev, above.st_uid) == (first.st_dev, first.st_uid):
            if any(same_directory(directory, each) for each in (os.path.expanduser("~"), os.sep)):
                return
            yield directory
            directory = os.path.dirname(directory)
            above = os.stat(directory)
    except OSError:
        return


def _first(directories: Sequence[str], name: str) -> int:
    """The index of the first directory with an entry of this name; 0 if there is none."""
    has = (os.path.lexists(os.path.join(directory, name)) for directory in directories)
    return next((index for index, found in enumerate(has) if found), 0)
