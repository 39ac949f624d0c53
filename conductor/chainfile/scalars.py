"""Parsers for scalars, one per target type: text to a value, or `ValueError`.

No message quotes the text, which may be a secret; the caller says what was expected.
"""

from __future__ import annotations

import math
import re
from enum import Enum
from typing import Annotated, TypeAlias

__all__ = [
    "Argv",
    "Bytes",
    "Seconds",
    "Unit",
    "boolean",
    "byte_size",
    "number",
    "seconds",
    "whole_number",
]


class Unit(Enum):
    """Notation of a field in chain files, for `Annotated` types."""

    WORDS = "words"
    SECONDS = "seconds"
    BYTES = "bytes"


Argv: TypeAlias = Annotated[tuple[str, ...], Unit.WORDS]
"""A program and its arguments; a single word is a program without arguments."""
Seconds: TypeAlias = Annotated[float, Unit.SECONDS]
"""A float that is written as a duration: `500ms`, `10s`, `2m`, `1h`."""

Bytes: TypeAlias = Annotated[int, Unit.BYTES]
"""An int that is written as a size: `65536`, `64KiB`, `10MB`."""

_DURATION = r"([0-9]+(?:\.[0-9]+)?) ?(ms|s|m|h)"
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SIZE = r"([0-9]+) ?([kKMGT]i?)?B?"
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_MAX_LENGTH = 100


def boolean(text: str) -> bool:
    value = _BOOLEANS.get(text.lower())
    if value is None:
        raise ValueError("not a boolean")
    return value


def whole_number(text: str) -> int:
    """Python syntax; `012` is refused, because it is 10 in YAML 1.1 and 12 in YAML 1.2."""
    return int(_short(text), 0)


def number(text: str) -> float:
    value = float(_short(text))
    if not math.isfinite(value):
        raise ValueError("not a finite number")
    return value


def seconds(text: str) -> float:
    found = re.fullmatch(_DURATION, _short(text))
    if not found:
        raise ValueError("not a duration")
    # Rounded, because 0.001 has no exact double: 2300 * 0.001 is not 2.3.
    return round(float(found[1]) * _SECONDS[found[2]], 9)


def byte_size(text: str) -> int:
    found = re.fullmatch(_SIZE, _short(text))
    if not found:
        raise ValueError("not a size")
    prefix = found[2] or ""
    base = 1024 if prefix.endswith("i") else 1000
    return int(found[1]) * int(base ** _POWERS.get(prefix[:1].upper(), 0))


def _short(text: str) -> str:
    """The text, or "" if it is too long or not ASCII (Python also reads other scripts' digits)."""
    return text if len(text) <= _MAX_LENGTH and text.isascii() else ""
