"""The workers of a plugin: who holds which lane, who waits for which answer.

A worker serves a lane until it is empty. When its handler starts to wait for an answer, the lane is
handed to another worker; when the answer comes, the worker that served the answer's lane hands that
lane to the one that waits. So there are as many workers as handlers that wait, plus one per lane,
and no task is started for a message.
"""

from __future__ import annotations

from contextvars import ContextVar

import attrs
import trio

from conductor.connection.calls import Call
from conductor.connection.lanes import Answer, Lane
from conductor.routing.sides import Side

__all__ = ["Turn", "Waiter", "current_turn"]


@attrs.define(eq=False)
class Turn:
    """What one worker is doing."""

    lane: Lane | None = None
    """The lane that it holds."""
    call: Call | None = None
    """The request that its handler works on."""
    back: Side | None = None
    """The side that the request came in through: its answer goes back there."""
    deferred: bool = False
    """Whether the request is answered by somebody else, later."""
    scope: trio.CancelScope | None = None
    waiting: list[Call] = attrs.field(factory=list)
    """The requests whose answers its handler waits for."""
    wake: trio.Event = attrs.field(factory=trio.Event)
    place: str = ""
    """Where the handler is, as file:line."""


@attrs.define(eq=False)
class Waiter:
    """Somebody who waits for the answer to a request of a plugin's own."""

    turn: Turn | None
    answer: Answer | None = None
    arrived: trio.Event = attrs.field(factory=trio.Event)


current_turn: ContextVar[Turn | None] = ContextVar("current_turn", default=None)
