"""Arguments of the commands of the test agent: words as in a shell, integers, JSON objects.

Each function raises `UsageError` for arguments that do not fit. Pure.
"""

from __future__ import annotations

import json
import shlex
from typing import Any, NoReturn

__all__ = ["UsageError", "integers", "one_and_json", "split_words", "two_and_json"]


class UsageError(Exception):
    """The arguments of a command are wrong."""


def split_words(arguments: str, least: int, most: int) -> list[str]:
    """Return the words; there must be `least` to `most`."""
    try:
        words = shlex.split(arguments)
    except ValueError:
        raise UsageError from None
    if not least <= len(words) <= most:
        raise UsageError
    return words


def integers(arguments: str, *defaults: int) -> list[int]:
    """Return one integer per default; a missing word takes its default."""
    words = split_words(arguments, 0, len(defaults))
    try:
        return [*map(int, words), *defaults[len(words) :]]
    except ValueError:
        raise UsageError from None


def one_and_json(arguments: str) -> tuple[str, dict[str, Any]]:
    """Return the first word, and the JSON object after it; empty if there is none."""
    first, _, rest = arguments.partition(" ")
    if not first:
        raise UsageError
    return first, _object(rest)


def two_and_json(arguments: str) -> tuple[str, str, dict[str, Any]]:
    """Return the first two words, and the JSON object after them; empty if there is none."""
    first, _, rest = arguments.partition(" ")
    second, given = one_and_json(rest.strip())
    return first, second, given


def _object(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        _refuse()
    return value if isinstance(value, dict) else _refuse()


def _refuse() -> NoReturn:
    raise UsageError
