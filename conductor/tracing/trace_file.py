"""Trace files: the records of chains on disk.

A file that is over its maximum size is renamed to `FILE.1`, and `FILE.1` to `FILE.2`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import starmap
from pathlib import Path
from typing import Final

import attrs

from conductor.tracing.encoder import Payloads
from conductor.tracing.masking import current_masker
from conductor.tracing.trace_writer import TraceWriter, log

__all__ = ["MAX_SIZE", "TraceFile"]

MAX_SIZE: Final = 256 * 1024 * 1024
"""Bytes of a trace file before another is begun."""
_KEPT: Final = 2
"""Number of older files."""


@attrs.define(eq=False, repr=False)
class TraceFile(TraceWriter):
    """A trace file; `recorder()` makes the recorder of each chain that is written to it.

    The file is created with mode 0600; an older one of the same name is renamed first. Raises
    `OSError` if it cannot be created. Later errors are logged, and end the writing.
    """

    path: Path = attrs.field()
    payloads: Payloads = "full"
    max_size: int = MAX_SIZE
    _fd: int = attrs.field(init=False)
    _size: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        TraceWriter.__attrs_post_init__(self)
        self._rename_older()
        self._fd = self._create()
        self.log = log.bind(file=str(self.path))
        self.start()

    def write(self, lines: bytes) -> None:
        if self._size and self._size + len(lines) > self.max_size:
            os.close(self._fd)
            self._rename_older()
            self._fd = self._create()
            headers = starmap(self.encoder.header, self.chains.items())
            lines = current_masker().mask_lines(b"".join(headers)) + lines
        self._size += len(lines)
        view = memoryview(lines)
        while view:
            view = view[os.write(self._fd, view) :]

    def end_writing(self) -> None:
        os.close(self._fd)

    def _create(self) -> int:
        self._size = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        return os.open(self.path, flags, 0o600)

    def _rename_older(self) -> None:
        names = [str(self.path), *(f"{self.path}.{number}" for number in range(1, _KEPT + 1))]
        for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
            with suppress(FileNotFoundError):
                os.replace(newer, older)
