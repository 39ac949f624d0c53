"""The handlers of events of a plugin class, as layers of the wire methods that carry the events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import attrs

from conductor.proxy.event_handlers import author_layers
from conductor.proxy.events import event_marks
from conductor.proxy.middleware import Layer, handler_layer
from conductor.proxy.session_tracking import Observers, layers_after, layers_before

__all__ = ["EventLayers", "event_layers"]


@attrs.define
class EventLayers:
    """The layers of a plugin class, by method. Those of the author's handlers are placed between
    those that track sessions (`session_tracking`)."""

    authors: Mapping[str, Sequence[tuple[int, Layer]]]
    """With the position of the handler in the class and its bases."""
    observers: Observers
    before: Mapping[str, Sequence[Layer]] = attrs.field(init=False)
    after: Mapping[str, Sequence[Layer]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.before, self.after = layers_before(self.observers), layers_after(self.observers)

    @property
    def methods(self) -> list[str]:
        """The methods that have a layer."""
        return list(dict.fromkeys([*self.before, *self.authors, *self.after]))

    def around(self, method: str, handlers: Sequence[tuple[int, Any]]) -> list[Layer]:
        """All layers of a method, those of its `@on` handlers included, which are given with their
        positions; empty if there is no layer of an event."""
        if method not in self.methods:
            return []
        placed = [(position, handler_layer(handler)) for position, handler in handlers]
        placed.extend(self.authors.get(method, ()))
        placed.sort(key=itemgetter(0))
        authors = [layer for _, layer in placed]
        return [*self.before.get(method, ()), *authors, *self.after.get(method, ())]


def event_layers(members: Iterable[tuple[int, Any]]) -> EventLayers | None:
    """Return the layers of these methods, given with their positions; `None` if none of them
    handles an event."""
    observers = Observers(defaultdict(list), [])
    authors: dict[str, list[tuple[int, Layer]]] = defaultdict(list)
    found = False
    for position, function in members:
        for mark in event_marks(function):
            found = True
            observers.add(mark, function)
            for method, layer in author_layers(function, mark):
                authors[method].append((position, layer))
    return EventLayers(authors, observers) if found else None
