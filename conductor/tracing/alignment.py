"""Alignment of two sequences by the fewest removed and added items. Pure.

Two runs of the same work have long sequences of few different messages (chunks of text, for
example), which differ at few places. Myers' algorithm (An O(ND) Difference Algorithm and Its
Variations, 1986) aligns them in time that grows with the differences; `difflib` either takes
quadratic time or leaves frequent items out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, TypeAlias

__all__ = ["Pair", "align"]

Pair: TypeAlias = tuple[int | None, int | None]
"""Indices of two equal items; or of one that was removed (second `None`) or added."""
_MAX_EDITS: Final = 1500
"""Sequences with more differences are aligned by `difflib`, without their frequent items."""


def align(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Pair]:
    """All items of both sequences, each once and in order."""
    numbers: dict[Hashable, int] = {}
    a, b = ([numbers.setdefault(each, len(numbers)) for each in items] for items in (old, new))
    start = _common(a, b)
    end = _common(a[start:][::-1], b[start:][::-1])
    inner_a, inner_b = a[start : len(a) - end], b[start : len(b) - end]
    inner = _myers(inner_a, inner_b)
    if inner is None:
        inner = list(_difflib(inner_a, inner_b))
    shifted = [
        (None if i is None else i + start, None if j is None else j + start) for i, j in inner
    ]
    last: list[Pair] = [(len(a) - k, len(b) - k) for k in range(end, 0, -1)]
    return [*((k, k) for k in range(start)), *shifted, *last]


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """The length of the common beginning."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((at for at, (x, y) in pairs if x != y), min(len(a), len(b)))


def _myers(a: Sequence[int], b: Sequence[int]) -> list[Pair] | None:
    """The alignment with the fewest edits; `None` if there are more than `_MAX_EDITS`.

    `furthest[k]` is the furthest `x` that is reached on diagonal `k = x - y`; `rounds` has it as
    before each round of one more edit, to walk back.
    """
    n, m = len(a), len(b)
    furthest = {1: 0}
    rounds: list[dict[int, int]] = []
    for edits in range(min(n + m, _MAX_EDITS) + 1):
        rounds.append(furthest.copy())
        lowest = -(edits - 2 * max(0, edits - m))
        highest = edits - 2 * max(0, edits - n)
        for k in range(lowest, highest + 1, 2):
            removed, added = furthest.get(k - 1, -1), furthest.get(k + 1, -1)
            x = added if removed < added else removed + 1
            y = x - k
            while x < n and y < m and a[x] == b[y]:
                x, y = x + 1, y + 1
            furthest[k] = x
            if x >= n and y >= m:
                return _walk_back(rounds, n, m)
    return None


def _walk_back(rounds: list[dict[int, int]], x: int, y: int) -> list[Pair]:
    pairs: list[Pair] = []
    for edits in range(len(rounds) - 1, -1, -1):
        furthest, k = rounds[edits], x - y
        removed, added = furthest.get(k - 1, -1), furthest.get(k + 1, -1)
        is_added = removed < added
        before_x = added if is_added else removed
        before_y = before_x - (k + 1 if is_added else k - 1)
        while x > before_x and y > before_y:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        if edits:
            pairs.append((None, before_y) if is_added else (before_x, None))
        x, y = before_x, before_y
    return pairs[::-1]


def _difflib(a: Sequence[int], b: Sequence[int]) -> Iterator[Pair]:
    for tag, i, i_end, j, j_end in SequenceMatcher(None, a, b).get_opcodes():
        if tag == "equal":
            yield from zip(range(i, i_end), range(j, j_end), strict=True)
        else:
            yield from ((k, None) for k in range(i, i_end))
            yield from ((None, k) for k in range(j, j_end))
