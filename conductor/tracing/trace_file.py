"""Trace files: the records of chains on disk.

A file that is over its maximum size is renamed to `FILE.1`, and `FILE.1` to `FILE.2`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from contextlib import suppress
from itertools import starmap
from pathlib import Path
from typing import Final

import attrs

from conductor.files import lock_file, open_own, open_regular
from conductor.log import Logger
from conductor.secrets.masking import mask
from conductor.tracing.encoder import Payloads
from conductor.tracing.trace_writer import TraceWriter, log

__all__ = ["MAX_SIZE", "TraceFile"]

MAX_SIZE: Final = 256 * 1024 * 1024
"""Bytes of a trace file before another is begun."""
_START: Final = re.compile(
    rb'\{"type": ?"(?:trace|request|notification|response|handler|log|stderr|lost)", ?"ts":'
)
"""With this a trace file begins, also one of the Rust conductor, of a chain that did not start
(`log`), and a part of one (`trace export`)."""
_START_SIZE: Final = 40
_KEPT: Final = 2
"""Number of older files."""


@attrs.define(eq=False, repr=False)
class TraceFile(TraceWriter):
    """A trace file; `recorder()` makes the recorder of each chain that is written to it.

    The file is created with mode 0600; an older one of the same name is renamed first, unless
    another conductor writes to it. Raises `OSError` if it cannot be created, or if the older one
    is not a trace. A later error is logged, and ends the writing.
    """

    path: Path = attrs.field()
    payloads: Payloads = "full"
    max_size: int = MAX_SIZE
    _fd: int = attrs.field(init=False)
    _size: int = attrs.field(default=0, init=False)
    _is_special: bool = attrs.field(default=False, init=False)
    """Whether it is a pipe or a device."""

    def __attrs_post_init__(self) -> None:
        TraceWriter.__attrs_post_init__(self)
        self._is_special = not (self.path.is_file() or self.path.is_dir()) and self.path.exists()
        if self._is_special:
            self._fd = _open_special(self.path)
        else:
            self._begin()
        self.log: Logger = log.bind(file=str(self.path))
        self.start()

    def write(self, lines: bytes) -> None:
        if not self._is_special and self._size and self._size + len(lines) > self.max_size:
            os.close(self._fd)
            self._rename_older()
            self._fd = self._create()
            headers = starmap(self.encoder.header, self.chains.items())
            lines = mask(b"".join(headers), are_lines=True) + lines
        view = memoryview(lines)
        while view:
            written = os.write(self._fd, view)
            self._size += written
            view = view[written:]

    def end_writing(self) -> None:
        os.close(self._fd)

    def _begin(self) -> None:
        """Create the file, or one with the process id in its name if a conductor writes to it."""
        if self.path.is_dir() or not _is_a_trace(self.path):
            raise FileExistsError(errno.EEXIST, "is not a trace file, and would be replaced")
        if _is_in_use(self.path):
            own = self.path.with_name(f"{self.path.stem}-{os.getpid()}{self.path.suffix}")
            log.warning("another conductor writes this trace", file=str(self.path), own=str(own))
            self.path = own
        self._rename_older()
        self._fd = self._create()

    def _create(self) -> int:
        self._size = 0
        fd = open_own(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
        with suppress(OSError):  # of a file system without locks
            lock_file(fd, 0)
        return fd

    def _rename_older(self) -> None:
        names = [str(self.path), *(f"{self.path}.{number}" for number in range(1, _KEPT + 1))]
        for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
            with suppress(FileNotFoundError):
                os.replace(newer, older)


def _is_a_trace(path: Path) -> bool:
    """Whether a file of this name may be renamed: a trace, an empty file, or none."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            start = file.read(_START_SIZE)
    except OSError:
        return True  # what is wrong is found when it is opened
    return not start or _START.match(start) is not None


def _is_in_use(path: Path) -> bool:
    """Whether a conductor holds the lock of this trace file."""
    try:
        fd = open_regular(path)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


def _open_special(path: Path) -> int:
    """Open a pipe or a device: it is neither renamed nor limited in size. Raises `OSError` if
    no process reads the pipe."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno == errno.ENXIO:
            raise OSError(
                errno.ENXIO, "no program reads this pipe; start the reader first"
            ) from exc
        raise
    if _is_foreign(path, os.fstat(fd)):
        os.close(fd)
        raise PermissionError(errno.EPERM, "another user has put it into this shared directory")
    os.set_blocking(fd, True)
    return fd


def _is_foreign(path: Path, found: os.stat_result) -> bool:
    """Whether another user may have put a file there to read the trace: as the kernel decides it
    with `fs.protected_fifos`, but only if a file may be created."""
    parent = path.parent.stat()
    is_shared = parent.st_mode & stat.S_IWOTH
    return bool(is_shared) and found.st_uid not in (0, os.geteuid(), parent.st_uid)
