"""Durations and sizes of trace commands: read from options, and shown."""

from __future__ import annotations

import re
from typing import Any, Final

import click

__all__ = ["DURATION", "shown_duration", "shown_size"]

_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
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


class _Duration(click.ParamType[Any]):
    """Converted to seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        found = _NUMBER.fullmatch(value.strip())
        factor = None if found is None else _SECONDS.get(found[2].lower())
        if found is None or factor is None:
            hint = "write it like 250ms, 1.5s or 2m"
            self.fail(f"{value!r} is not a duration; {hint}", param, ctx)
        return float(found[1]) * factor


DURATION: Final = _Duration()
