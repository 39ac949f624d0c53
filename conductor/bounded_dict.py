"""A dict with a maximum number of items, as `collections.deque(maxlen=…)` is a list with one."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

__all__ = ["BoundedDict"]

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(OrderedDict[K, V]):
    """A dict of at most `maxlen` items: a further key drops the one that was added first.

    For what a peer names and may never end: an agent invents as many ids as it likes. A key that is
    set again keeps its place; `move_to_end` makes it the newest.
    """

    def __init__(self, maxlen: int) -> None:
        super().__init__()
        self.maxlen: int = maxlen

    def __setitem__(self, key: K, value: V) -> None:
        self.add(key, value)

    def add(self, key: K, value: V) -> tuple[K, V] | None:
        """Set an item; return the key and value that were dropped for it."""
        super().__setitem__(key, value)
        return self.popitem(last=False) if len(self) > self.maxlen else None
