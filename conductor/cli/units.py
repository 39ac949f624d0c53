"""Durations, sizes and times of trace commands: read from options, and shown."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

import click

__all__ = ["DURATION", "SIZE", "TIME", "shown_duration", "shown_size"]

_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
_BYTES: Final = {"": 1, "b": 1, "k": 1000, "kb": 1000, "m": 1000**2, "mb": 1000**2}
_NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([a-z]*)", re.IGNORECASE)


def shown_duration(seconds: float) -> str:
    """A duration with its unit, in eight characters or fewer: `0.25 ms`, `12.5 s`."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 99.5:
        return f"{seconds:.3g} s"
    if seconds < 5970:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def shown_size(size: float) -> str:
    """Bytes with their unit: `71 B`, `2.2 kB`, `1.3 MB`."""
    if size < 1000:
        return f"{size:.0f} B"
    if size < 999_500:
        return f"{size / 1000:.3g} kB"
    return f"{size / 1_000_000:.1f} MB"


class _Quantity(click.ParamType[Any]):
    def __init__(self, name: str, units: dict[str, float], example: str) -> None:
        self.name = name
        self._units = units
        self._example = example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        found = _NUMBER.fullmatch(value.strip())
        factor = None if found is None else self._units.get(found[2].lower())
        if found is None or factor is None:
            self.fail(f"{value!r} is not a {self.name}; write it like {self._example}", param, ctx)
        return float(found[1]) * factor


class _Time(click.ParamType[Any]):
    """A moment: seconds since the beginning of the trace, or a date and time, or a time of day.

    Converted to a float (seconds since the beginning), to a `datetime`, or to a `time`.
    """

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        if _NUMBER.fullmatch(value):
            return DURATION.convert(value, param, ctx)
        from datetime import time

        for read in (time.fromisoformat, datetime.fromisoformat):
            try:
                return read(value)
            except ValueError:
                continue
        hint = "seconds since the beginning (12.5), a time (14:03:20) or a date and time"
        return self.fail(f"{value!r} is not a time; write {hint} (2026-01-31T14:03)", param, ctx)


DURATION: Final = _Quantity("duration", _SECONDS, "250ms, 1.5s or 2m")
SIZE: Final = _Quantity("size", {name: float(each) for name, each in _BYTES.items()}, "500 or 20k")
TIME: Final = _Time()
