"""Arguments of the commands of the test agent: words as in a shell, integers, `name=value`, JSON
objects.

Each function raises `UsageError` for arguments that do not fit. Pure.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, NoReturn

__all__ = ["UsageError", "details", "integers", "one_and_json", "split_words", "two_and_json"]


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


def details(arguments: str, *names: str) -> tuple[str, dict[str, list[str]]]:
    """Return the text before the first word `NAME=VALUE`, and the values by name from there on.

    The text stays as it was written; only the words after it are split as in a shell.
    """
    first = re.search(rf"(?:^|\s)(?:{'|'.join(names)})=", arguments)
    text, rest = (
        (arguments[: first.start()], arguments[first.start() :]) if first else (arguments, "")
    )
    found: dict[str, list[str]] = {name: [] for name in names}
    for word in split_words(rest, 0, len(rest)):
        name, is_given, value = word.partition("=")
        if not is_given or name not in found:
            raise UsageError
        found[name].append(value)
    return text.strip(), found


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
