"""Short human-readable difference of two JSON values, as lines. Pure."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any, Final

import msgspec

__all__ = ["canonical_json", "json_diff", "short_json", "without_marks"]

_WIDTH: Final = 88
_CONTEXT: Final = 24
"""Characters shown before the first difference of two texts."""
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def json_diff(old: Any, new: Any) -> list[str]:
    """The differences, in order: `- path: value` for a removed and `+ path: value` for a new one.

    Long values are shortened. Empty if the values are equal.
    """
    try:
        return list(_diff("", old, new))
    except RecursionError:
        return ["- (nested too deeply to be compared)", "+ (nested too deeply to be compared)"]


def short_json(value: Any, width: int = _WIDTH) -> str:
    """A value as compact JSON, cut after `width` characters."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "(nested too deeply to be shown)"
    return text if len(text) <= width else text[: width - 1] + "…"


def canonical_json(value: Any) -> bytes:
    """A value as JSON with sorted names, to compare it by; empty if it is nested too deeply."""
    try:
        return _encode(value)
    except RecursionError:
        return b""
    except (ValueError, OverflowError, msgspec.MsgspecError):  # a lone surrogate, a large integer
        return json.dumps(value, sort_keys=True).encode()


def without_marks(value: Any) -> Any:
    """A value without the members of `_meta` that are between proxies of the conductor."""
    meta = value.get("_meta") if isinstance(value, dict) else None
    if not isinstance(meta, dict):
        return value
    kept = {name: each for name, each in meta.items() if not name.startswith("acp-conductor/")}
    rest = {name: each for name, each in value.items() if name != "_meta"}
    return {**rest, "_meta": kept} if kept else rest


def _diff(path: str, old: Any, new: Any) -> Iterator[str]:
    match old, new:
        case dict(), dict():
            for name in [*old, *(each for each in new if each not in old)]:
                inner = f"{path}.{name}" if path else str(name)
                if name not in new:
                    yield f"- {inner}: {short_json(old[name])}"
                elif name not in old:
                    yield f"+ {inner}: {short_json(new[name])}"
                else:
                    yield from _diff(inner, old[name], new[name])
        case list(), list():
            yield from _diff_lists(path, old, new)
        case str(), str() if old != new:
            start = _first_difference(old, new)
            yield f"- {_at(path)}{short_json(_from(old, start))}"
            yield f"+ {_at(path)}{short_json(_from(new, start))}"
        case _ if old != new or type(old) is not type(new):
            yield f"- {_at(path)}{short_json(old)}"
            yield f"+ {_at(path)}{short_json(new)}"


def _diff_lists(path: str, old: list[Any], new: list[Any]) -> Iterator[str]:
    before, after = ([canonical_json(each) for each in items] for items in (old, new))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, i, i_end, j, j_end in matcher.get_opcodes():
        if tag == "replace" and i_end - i == j_end - j:
            for offset in range(i_end - i):
                yield from _diff(f"{path}[{j + offset}]", old[i + offset], new[j + offset])
        elif tag != "equal":
            yield from (f"- {path}[{k}]: {short_json(old[k])}" for k in range(i, i_end))
            yield from (f"+ {path}[{k}]: {short_json(new[k])}" for k in range(j, j_end))


def _first_difference(old: str, new: str) -> int:
    pairs = zip(old, new, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(old), len(new)))


def _from(text: str, start: int) -> str:
    """The part of a text that is shown: from shortly before `start`."""
    return text if start <= _CONTEXT else "…" + text[start - _CONTEXT :]


def _at(path: str) -> str:
    return f"{path}: " if path else ""
