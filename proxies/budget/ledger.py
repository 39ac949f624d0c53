"""Sums of the current day, in memory or in a file that several chains share.

The file is locked while it is read and written, so checking a limit and adding to it is atomic
across processes. It is overwritten in place, since the lock belongs to the file. A crash between
writing and truncating leaves the end of the old content, which is ignored. Nothing else runs while
another process keeps the lock; after a failed wait, it is not waited for again until it is free.
"""

from __future__ import annotations

import datetime
import errno
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from conductor.files import lock_file, open_own

__all__ = ["Ledger", "LedgerError", "Sums"]

Sums = dict[str, float]

_MAX_BYTES: Final = 65536
"""Maximum bytes read from the file."""
_PATIENCE: Final = 0.5
"""Seconds to wait for the lock."""


class LedgerError(Exception):
    """The file cannot be read or written, or is not a ledger; `reason` follows its name."""

    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(f"{file} {reason}")
        self.reason = reason


@attrs.define
class Ledger:
    """Amounts spent today, by name, such as `turns`."""

    file: Path | None = None
    _day: str = attrs.field(default="", init=False)
    _sums: Sums = attrs.field(factory=dict, init=False)
    """Sums of today, as last read."""
    _unwritten: Sums = attrs.field(factory=dict, init=False)
    """Amounts of today that could not be written yet."""
    _patience: float = attrs.field(default=_PATIENCE, init=False)

    def reserve(
        self, amounts: Mapping[str, float], over: Callable[[Sums], str | None]
    ) -> str | None:
        """Add the amounts unless `over` returns a reason for today's sums; return the reason.
        Raises `LedgerError`; then nothing was added."""
        self._start_day()
        refused: list[str | None] = []

        def change(sums: Sums) -> Sums:
            refused.append(over(sums))
            return sums if refused[0] else _sum(sums, amounts)

        self._transact(change)
        return refused[0]

    def add(self, amounts: Mapping[str, float]) -> None:
        """Add spent amounts. If that raises `LedgerError`, they are written with the next ones."""
        self._start_day()
        self._unwritten = _sum(self._unwritten, amounts)
        self._transact(lambda sums: sums)

    def refund(self, amounts: Mapping[str, float], day: str) -> None:
        """Subtract amounts reserved on `day`, if that is still today. Raises as `add`."""
        if day == self.today():
            self.add({name: -amount for name, amount in amounts.items()})

    def today(self) -> str:
        return datetime.date.today().isoformat()

    def sums(self) -> Sums:
        """Return today's sums; if the file cannot be read now, those last read plus unwritten
        ones."""
        self._start_day()
        try:
            self._transact(lambda sums: sums)
        except LedgerError:
            return _sum(self._sums, self._unwritten)
        return self._sums

    # ----------------------------------------------------------------------------------------------

    def _start_day(self) -> None:
        if self._day != self.today():
            self._day, self._sums, self._unwritten = self.today(), {}, {}

    def _transact(self, change: Callable[[Sums], Sums]) -> None:
        """Replace today's sums, including unwritten amounts, with the result of `change`."""
        if self.file is None:
            self._sums = change(_sum(self._sums, self._unwritten))
            self._unwritten = {}
            return
        try:
            # Opened each time, as another chain's conductor may have made the file.
            descriptor = open_own(self.file, os.O_RDWR | os.O_CREAT)
            try:
                patience, self._patience = self._patience, 0.0
                lock_file(descriptor, patience)
                self._patience = _PATIENCE
                before = _read(os.pread(descriptor, _MAX_BYTES, 0), self._day)
                after = change(_sum(before, self._unwritten))
                after = {name: max(0, amount) for name, amount in after.items()}
                if after != before:
                    _write(descriptor, {"day": self._day, "sums": after})
            finally:
                os.close(descriptor)
        except OSError as exc:
            raise LedgerError(self.file, f"cannot be used: {exc.strerror}") from exc
        except (ValueError, OverflowError, RecursionError) as exc:
            reason = f"is not a ledger ({exc}); remove it to start a new one"
            raise LedgerError(self.file, reason) from exc
        self._sums, self._unwritten = after, {}


def _sum(sums: Sums, amounts: Mapping[str, float]) -> Sums:
    return {**sums, **{name: sums.get(name, 0) + amount for name, amount in amounts.items()}}


def _read(content: bytes, today: str) -> Sums:
    """Parse today's sums from the file content; empty for a new, empty file."""
    if not content:
        return {}
    read: Any = json.JSONDecoder().raw_decode(content.decode())[0]
    match read:
        case {"day": str(day), "sums": dict(sums)} if all(
            isinstance(amount, int | float) and math.isfinite(amount) for amount in sums.values()
        ):
            return sums if day == today else {}
    raise ValueError("expected `day` and `sums`")


def _write(descriptor: int, content: Mapping[str, Any]) -> None:
    data = json.dumps(content).encode()
    if os.pwrite(descriptor, data, 0) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.ftruncate(descriptor, len(data))
