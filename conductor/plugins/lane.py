"""Lanes: how an in-process hop delivers the messages of one direction, in order, one at a time.

A lane is held while a message of it is dealt with. Whoever holds it may let go of it (a handler
that starts waiting for an answer does), and then somebody else goes on with the next message. An
answer gives the lane that it came on to the handler that waits for it. The rules are the author's
API's (`conductor.proxy`); this module only keeps the books, `plugins.scheduler` has the tasks.

A lane that nobody holds is empty: what needs no handler passes it without stopping.

What waits in a lane is made of msgspec's structs: there is one for every handled message, and they
cost a third of what attrs' cost. They are told apart by `type()`, since `isinstance` asks their
metaclass, for 0.1 µs each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias, final

import attrs
import msgspec

from conductor.jsonrpc.in_flight import InFlightRequest

__all__ = ["Lane", "LaneItem", "LaneNotification", "LaneRequest", "LaneResponse"]


@final
class LaneRequest(msgspec.Struct, eq=False):
    call: InFlightRequest
    method: str
    params: bytes | None
    answered: bool = False
    """It was answered while it waited."""


@final
class LaneNotification(msgspec.Struct, eq=False):
    method: str
    params: bytes | None
    already_observed: bool = False
    """It was held back after it had been shown to taps and observers."""
    from_plugin: bool = False
    """The plugin sent it: no handler of its own is to see it."""


@final
class LaneResponse(msgspec.Struct, eq=False):
    call: InFlightRequest
    result: bytes | None
    error: bytes | None


LaneItem: TypeAlias = LaneRequest | LaneNotification | LaneResponse


@attrs.define(eq=False, repr=False)
class Lane:
    """The messages of one direction that wait for their turn.

    The methods that return a bool say whether somebody has to take the lane now: it was given to
    nobody in particular, but counts as held.
    """

    direction: str
    held: bool = False
    size: int = 0
    """Bytes of the payloads that wait."""
    delivered: int = 0
    """How many messages had their turn so far."""
    _queue: deque[LaneItem] = attrs.field(factory=deque, init=False)

    def put(self, item: LaneItem) -> bool:
        """Queue a message."""
        self._queue.append(item)
        self.size += _payload_size(item)
        if self.held:
            return False
        self.held = True
        return True

    def put_batch(self, items: Sequence[LaneNotification]) -> bool:
        """Queue several notifications."""
        self._queue.extend(items)
        self.size += sum([len(item.params) for item in items if item.params is not None])
        was_held, self.held = self.held, True
        return not was_held

    def put_back(self, items: Sequence[LaneItem]) -> bool:
        """Queue messages that were held back before everything that waits."""
        if not items:
            return False
        self._queue.extendleft(reversed(items))
        self.size += sum(map(_payload_size, items))
        was_held, self.held = self.held, True
        return not was_held

    def take(self) -> LaneItem | None:
        """The next message, for whoever holds the lane; without one, the lane is let go."""
        queue = self._queue
        if not queue:
            self.held = False
            return None
        item = queue.popleft()
        self.delivered += 1
        if type(item) is LaneNotification and (params := item.params) is not None:
            self.size -= len(params)  # the frequent case, at half the price
        else:
            self.size -= _payload_size(item)
        return item

    def release(self) -> bool:
        """Give up the lane that one holds."""
        self.held = bool(self._queue)
        return self.held

    def waiting(self) -> tuple[LaneItem, ...]:
        """What waits, in order."""
        return tuple(self._queue)

    def remove(self, item: LaneItem) -> None:
        """Take out a message that waits."""
        self._queue.remove(item)
        self.size -= _payload_size(item)

    def close(self) -> list[LaneItem]:
        """Hold the lane for good; returns what waits."""
        items = list(self._queue)
        self._queue.clear()
        self.size = 0
        self.held = True
        return items


def _payload_size(item: LaneItem) -> int:
    if type(item) is LaneResponse:
        return len(item.result or item.error or b"")
    return len(item.params or b"")
