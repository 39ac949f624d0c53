"""Mask registered secrets in logs, errors and reports.

`secret_detection` and `component_secrets` of `chain.build` decide which values are secrets. Values
under six characters are not masked: masking `1` or `debug` would hide nothing and garble the text.
Pure, except for the process-wide set of registered secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from conductor.secret_detection import names_a_secret

__all__ = [
    "MASK",
    "redact",
    "redact_value",
    "register_environment",
    "register_secrets",
    "registered_secrets",
]

MASK: Final = "***"
_MIN_LENGTH: Final = 6
_secrets: frozenset[str] = frozenset()
_pattern: re.Pattern[str] | None = None


def register_secrets(values: Iterable[str]) -> None:
    """Mask these values in all text redacted from now on."""
    global _pattern, _secrets
    # A value of several lines is printed line by line, and JSON escapes some characters.
    parts = {
        part for value in values for line in value.splitlines() for part in _escaped_forms(line)
    }
    new = {part for part in parts if len(part) >= _MIN_LENGTH} - _secrets
    if new:
        _secrets |= new
        longest_first = sorted(_secrets, key=len, reverse=True)
        _pattern = re.compile("|".join(map(re.escape, longest_first)))


def register_environment(environ: Mapping[str, str]) -> None:
    """Register the values of all environment variables that are named like a secret."""
    register_secrets(value for name, value in environ.items() if names_a_secret(name))


def registered_secrets() -> frozenset[str]:
    """The values that are masked; the same object until another value is registered."""
    return _secrets


def redact(text: str) -> str:
    """The text with registered secrets masked."""
    return text if _pattern is None else _pattern.sub(MASK, text)


def redact_value(value: Any) -> Any:
    """A JSON value, or the value of a log field, with registered secrets masked."""
    if _pattern is None:
        return value
    match value:
        case str():
            return redact(value)
        case Mapping():
            return {name: redact_value(inner) for name, inner in value.items()}
        case list() | tuple() | set() | frozenset():
            return [redact_value(inner) for inner in value]
    return value


def _escaped_forms(line: str) -> set[str]:
    import json

    return {line, line.strip(), json.dumps(line)[1:-1], json.dumps(line, ensure_ascii=False)[1:-1]}
