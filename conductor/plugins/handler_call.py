"""A handler call: one handler at work on one message, and the answers that it waits for.

A task that a handler starts inherits its call; when the handler has ended, the call is `done` and
the task runs beside the lanes.
"""

from __future__ import annotations

from contextvars import ContextVar
from types import CoroutineType
from typing import Any

import msgspec
import trio

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.plugins.lane import Lane, LaneItem, LaneResponse
from conductor.plugins.plugin_port import PluginPort
from conductor.proxy.conversion import encode
from conductor.proxy.handlers import Handler

__all__ = ["HandlerCall", "ResponseState", "ResponseWaiter", "current_handler_call"]


class ResponseState(msgspec.Struct, eq=False):
    """What only a handler of a request needs."""

    call: InFlightRequest
    scope: trio.CancelScope = msgspec.field(default_factory=trio.CancelScope)
    settled: bool = False
    """Whether it was answered in the handler's place, whose own answer is dropped."""
    deferred: bool = False
    """Whether it is answered by somebody else, later."""
    answer: LaneResponse | None = None
    """The last answer to what the handler forwarded."""
    created_sessions: tuple[str, ...] = ()
    """The sessions that this answer may open, whose updates wait until it has been passed on."""


class HandlerCall(msgspec.Struct, eq=False):
    """A handler that runs. There is one for every handled message, hence a struct of msgspec's."""

    handler: Handler
    lane: Lane | None
    """The lane that it holds."""
    port: PluginPort
    """The port through which the message came."""
    item: LaneItem
    answering: ResponseState | None = None
    coroutine: CoroutineType[Any, Any, Any] | None = None
    awaited: tuple[InFlightRequest, ...] = ()
    """Its own requests whose answers it waits for."""
    forwarded: bool = False
    done: bool = False

    @property
    def is_observer_call(self) -> bool:
        """It only looks on: it may not let go of the lane."""
        return self.handler is self.port.observer

    @property
    def place(self) -> str:
        """Where the handler is, as file:line."""
        frame = self.coroutine.cr_frame if self.coroutine is not None else None
        if frame is None:
            return self.handler.place
        return f"{frame.f_code.co_filename}:{frame.f_lineno}"

    async def forward_notification(self, message: Any = None) -> None:
        """The `forward` of a notification's handler."""
        self.forwarded = True
        item = self.item
        params = item.params if message is None else encode(message)  # type: ignore[union-attr]
        self.port.other.neighbour.notify(item.method, params)  # type: ignore[union-attr]


class ResponseWaiter(msgspec.Struct, eq=False):
    """Somebody who waits for the answer to a request of a plugin's own."""

    handler_call: HandlerCall | None
    forwards: bool
    """Whether the turn's own message was forwarded, and not something else requested."""
    answer: LaneResponse | None = None
    arrived: trio.Event = msgspec.field(default_factory=trio.Event)


current_handler_call: ContextVar[HandlerCall | None] = ContextVar(
    "current_handler_call", default=None
)
