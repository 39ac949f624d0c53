"""Lines of a file that grows, as `tail -f` reads it.

A file that is renamed when it is full is read to its end; the reading goes on in the new file of
that name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from conductor.files import open_as_given

__all__ = ["follow_lines"]

_BLOCK: Final = 1024 * 1024


def follow_lines(path: str | os.PathLike[str], wait: Callable[[], None]) -> Iterator[bytes]:
    """The whole lines of a file, now and whenever some are added. Does not end.

    Waits for a file that does not exist yet. `wait` is called when there is nothing to read now,
    and sleeps.
    Raises `OSError` if the file cannot be read.
    """
    path = Path(path)
    while True:
        while not path.exists():
            wait()
        with open_as_given(path) as file:
            yield from _lines_until_renamed(path, file, wait)


def _lines_until_renamed(path: Path, file: BinaryIO, wait: Callable[[], None]) -> Iterator[bytes]:
    rest = b""
    while True:
        is_renamed = _is_renamed(path, file)  # before the reading: nothing is added after it
        while block := file.read(_BLOCK):
            *lines, rest = (rest + block).split(b"\n")
            yield from (line + b"\n" for line in lines)
        if is_renamed:
            return
        wait()


def _is_renamed(path: Path, file: BinaryIO) -> bool:
    """Whether the path is now that of another file."""
    try:
        now = path.stat()
    except FileNotFoundError:
        return False  # being renamed, or removed
    opened = os.fstat(file.fileno())
    return (now.st_dev, now.st_ino) != (opened.st_dev, opened.st_ino)
