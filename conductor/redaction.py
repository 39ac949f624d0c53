"""Mask registered secrets in logs, errors and reports.

Which values are secrets is decided elsewhere (`secret_detection`, `chain.component_secrets`). Very
short ones are not masked: masking `1` or `debug` would hide nothing and garble everything. Pure,
but for the one set of what was told to this process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from conductor.secret_detection import names_a_secret

__all__ = ["MASK", "redact", "redact_value", "register_environment", "register_secrets"]

MASK: Final = "***"
_MIN_LENGTH: Final = 6
_secrets: set[str] = set()
_pattern: re.Pattern[str] | None = None


def register_secrets(values: Iterable[str]) -> None:
    """From now on, mask these values in all text that leaves."""
    global _pattern
    # A value of several lines is printed line by line, and JSON escapes some characters.
    parts = {
        part for value in values for line in value.splitlines() for part in _escaped_forms(line)
    }
    new = {part for part in parts if len(part) >= _MIN_LENGTH} - _secrets
    if new:
        _secrets.update(new)
        longest_first = sorted(_secrets, key=len, reverse=True)
        _pattern = re.compile("|".join(map(re.escape, longest_first)))


def register_environment(environ: Mapping[str, str]) -> None:
    """Mask the values of variables with the name of a secret, in every component."""
    register_secrets(value for name, value in environ.items() if names_a_secret(name))


def redact(text: str) -> str:
    """The text without the secrets."""
    return text if _pattern is None else _pattern.sub(MASK, text)


def redact_value(value: Any) -> Any:
    """A value of JSON, or of a log's field, without the secrets."""
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
