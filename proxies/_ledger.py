"""The sum of a day, in memory or in a file that several chains share."""

from __future__ import annotations

import datetime
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path

import attrs

__all__ = ["Ledger"]

Sums = dict[str, float]


@attrs.define
class Ledger:
    """What was spent today, by what is limited."""

    file: Path | None = None
    _day: str = attrs.field(default="", init=False)
    _sums: Sums = attrs.field(factory=dict, init=False)

    def add(self, amounts: Mapping[str, float]) -> Sums:
        """Add to today's sums and return them; nothing is added to read them.

        Raises `OSError` when the file cannot be used.
        """
        today = datetime.date.today().isoformat()
        if self.file is None:
            if self._day != today:
                self._day, self._sums = today, {}
            self._sums = _sum(self._sums, amounts)
            return self._sums
        # Opened for each addition, as another chain's conductor may have made the file.
        descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT, 0o600)
        with open(descriptor, "r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            sums = _sum(_read(file.read(), today), amounts)
            if amounts:
                file.seek(0)
                file.truncate()
                json.dump({"day": today, "sums": sums}, file)
            return sums


def _sum(sums: Sums, amounts: Mapping[str, float]) -> Sums:
    return sums | {name: sums.get(name, 0) + amount for name, amount in amounts.items()}


def _read(text: str, today: str) -> Sums:
    """What the file says of today; a file that was cut off by a crash says nothing."""
    try:
        content = json.loads(text or "{}")
        return dict(content["sums"]) if content.get("day") == today else {}
    except (ValueError, KeyError, AttributeError):
        return {}
