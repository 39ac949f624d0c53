"""Lanes: queues that deliver the messages of one direction in order, one at a time. Pure.

A lane is held while one of its messages is handled. The holder may release it (a handler that
starts waiting for a response does), and another worker continues with the next message. A response
gives its lane to the handler that waits for it. The rules are in docs/ordering.md; this
module has the queues, `plugins.scheduler` the tasks.

A lane that is not held is empty: messages without a handler pass it without being queued.

Lane items are msgspec structs: there is one for every handled message, and they cost a third of
attrs classes. `type()` distinguishes them, since `isinstance` calls their metaclass, for 0.1 µs
each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias, final

import attrs
import msgspec

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.routing.trace import Mark

__all__ = ["Lane", "LaneItem", "LaneNotification", "LaneRequest", "LaneResponse"]


@final
class LaneRequest(msgspec.Struct, eq=False):
    call: InFlightRequest
    method: str
    params: bytes | None
    answered: bool = False
    """Whether it was answered while it was queued."""
    mark: Mark | None = None
    """Set in a traced chain."""


@final
class LaneNotification(msgspec.Struct, eq=False):
    method: str
    params: bytes | None
    already_observed: bool = False
    """Whether taps and observers have seen it before it was withheld."""
    from_plugin: bool = False
    """Whether the plugin sent it: its own handlers do not see it."""
    mark: Mark | None = None


@final
class LaneResponse(msgspec.Struct, eq=False):
    call: InFlightRequest
    result: bytes | None
    error: bytes | None
    mark: Mark | None = None


LaneItem: TypeAlias = LaneRequest | LaneNotification | LaneResponse


@attrs.define(eq=False, repr=False)
class Lane:
    """The queued messages of one direction.

    Methods that return a bool return whether a worker has to be scheduled: the lane counts as held,
    and no worker serves it yet.
    """

    direction: str
    held: bool = False
    size: int = 0
    """Bytes of the queued payloads."""
    delivered: int = 0
    """Number of messages taken so far."""
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
        """Queue withheld messages in front of all others."""
        if not items:
            return False
        self._queue.extendleft(reversed(items))
        self.size += sum(map(_payload_size, items))
        was_held, self.held = self.held, True
        return not was_held

    def take(self) -> LaneItem | None:
        """Take the next message, as holder of the lane; None releases the lane."""
        queue = self._queue
        if not queue:
            self.held = False
            return None
        item = queue.popleft()
        self.delivered += 1
        if not queue:
            self.size = 0
        elif type(item) is LaneNotification and (params := item.params) is not None:
            self.size -= len(params)  # the frequent case, at half the cost
        else:
            self.size -= _payload_size(item)
        return item

    def release(self) -> bool:
        """Release the lane, as its holder."""
        self.held = bool(self._queue)
        return self.held

    def waiting(self) -> tuple[LaneItem, ...]:
        """The queued messages, in order."""
        return tuple(self._queue)

    def remove(self, item: LaneItem) -> None:
        """Remove a queued message."""
        self._queue.remove(item)
        self.size -= _payload_size(item)

    def close(self) -> list[LaneItem]:
        """Hold the lane forever; returns the queued messages."""
        items = list(self._queue)
        self._queue.clear()
        self.size = 0
        self.held = True
        return items


def _payload_size(item: LaneItem) -> int:
    if type(item) is LaneResponse:
        return len(item.result or item.error or b"")
    return len(item.params or b"")
