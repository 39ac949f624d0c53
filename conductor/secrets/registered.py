"""Registered secrets: masked, as all known formats of keys, in logs, errors and reports.

`names_a_secret` and `component_secrets` of `chain.build` decide which values are registered. Values
under six characters are not masked: masking `1` or `debug` would hide nothing and garble the text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from conductor.secrets.formats import Span, format_spans, names_a_secret

__all__ = [
    "MASK",
    "merged",
    "redact",
    "redact_value",
    "register_environment",
    "register_secrets",
    "registered_secrets",
    "take_secret",
]

MASK: Final = "***"
_MIN_LENGTH: Final = 6
_secrets: frozenset[str] = frozenset()
_pattern: re.Pattern[bytes] | None = None


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
        alternatives = "|".join(map(re.escape, longest_first))
        _pattern = re.compile(alternatives.encode(errors="surrogatepass"))


def register_environment(environ: Mapping[str, str]) -> None:
    """Register the values of all environment variables that are named like a secret."""
    register_secrets(value for name, value in environ.items() if names_a_secret(name))


def registered_secrets() -> frozenset[str]:
    """The values that are masked; the same object until another value is registered."""
    return _secrets


def redact(text: str) -> str:
    """The text with registered secrets and keys of known formats masked."""
    data = text.encode(errors="surrogatepass")
    spans = format_spans(data)
    if _pattern is not None:
        spans += [found.span() for found in _pattern.finditer(data)]
    if not spans:
        return text
    parts, done = list[bytes](), 0
    for start, end in merged(spans):
        parts += (data[done:start], MASK.encode())
        done = end
    return b"".join([*parts, data[done:]]).decode(errors="surrogatepass")


def redact_value(value: Any) -> Any:
    """A JSON value, or the value of a log field, with its secrets masked."""
    match value:
        case str():
            return redact(value)
        case Mapping():
            return {name: redact_value(inner) for name, inner in value.items()}
        case list() | tuple() | set() | frozenset():
            return [redact_value(inner) for inner in value]
    return value


def merged(spans: list[Span]) -> list[Span]:
    """In order, overlapping ones as one."""
    spans.sort()
    found = spans[:1]
    for start, end in spans[1:]:
        first, last = found[-1]
        if start < last:
            found[-1] = first, max(last, end)
        else:
            found.append((start, end))
    return found


def take_secret(name: str) -> str | None:
    """The value of a variable, `None` if unset. Removes it from `os.environ`, from the environment
    of children, and from `/proc/PID/environ`, which shows the initial bytes to every process of the
    same user."""
    value = os.environ.get(name)
    if value is None:
        return None
    import ctypes  # takes 5 ms, and most programs have no such variable

    libc = ctypes.CDLL(None)
    libc.getenv.argtypes, libc.getenv.restype = [ctypes.c_char_p], ctypes.c_void_p
    address = libc.getenv(os.fsencode(name))
    if address:
        ctypes.memset(address, 0, len(os.fsencode(value)))
    del os.environ[name]
    return value


def _escaped_forms(line: str) -> set[str]:
    import json

    forms = {line, line.strip()}
    for _ in range(2):  # a trace has lines of JSON in its texts
        forms |= {json.dumps(f, ensure_ascii=only)[1:-1] for f in forms for only in (True, False)}
    return forms
