"""A handler call: one handler run for one message, and the responses that it waits for.

A task that a handler starts inherits its call through a context variable; when the handler has
ended, the call is `done` and the task holds no lane. A task of `start_soon` leaves the call, and
keeps what the message that it was started for tells a trace and the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final

import msgspec
import trio

from conductor.acp import message_names
from conductor.jsonrpc.awaited_response import AwaitedResponse
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.log import bind_context
from conductor.plugins.lane import Lane, LaneItem, LaneResponse
from conductor.plugins.plugin_port import PluginPort
from conductor.proxy.conversion import encode_edited
from conductor.proxy.middleware import Handler
from conductor.routing.trace import Mark

__all__ = [
    "HandlerCall",
    "HandlerResponse",
    "ResponseState",
    "TaskBeside",
    "begin_worker",
    "current_handler_call",
    "current_session",
    "current_task",
    "handled_message",
    "leave_handler_call",
]


class ResponseState(msgspec.Struct, eq=False):
    """State of the response to the request that a handler handles."""

    call: InFlightRequest
    send: Callable[..., Awaitable[bytes]]
    """Sends a request of the handler and waits: `OutgoingMessages.request`."""
    keep: Callable[[bytes | None, bytes | None], None] | None = None
    """Of `initialize`: keeps members of its params and of its result."""
    time_limit: float | None = None
    """Of `initialize`, in seconds. The time in which the handler waits for a response does not
    count: the successor has a `start_timeout` of its own."""
    scope: trio.CancelScope = msgspec.field(default_factory=trio.CancelScope)
    answered: bool = False
    """Whether the request has its answer; further ones are dropped. If the handler still runs, it
    is cancelled, unless it has itself answered the deferred request."""
    on_cancelled: Callable[[], None] | None = None
    """Set if the request is answered later, through `Plugin.defer`: called when it is cancelled."""
    answer: LaneResponse | None = None
    """The last response to the forwarded request."""
    created_sessions: tuple[str, ...] = ()
    """Sessions that the response may open; their updates are withheld until it is sent."""

    def start_clock(self) -> None:
        """The handler runs from now on."""
        if self.time_limit is not None:
            self.scope.deadline = trio.current_time() + self.time_limit


class HandlerCall(msgspec.Struct, eq=False):
    """One run of a handler. There is one for every handled message, hence a msgspec struct."""

    handler: Handler
    lane: Lane | None
    """The lane that it holds."""
    port: PluginPort
    """The port through which the message came."""
    item: LaneItem
    message: Any = None
    """The decoded message, which the handler may change; `None` until it has been read."""
    response_state: ResponseState | None = None
    awaited: frozenset[InFlightRequest] = frozenset()
    """Requests of the handler that it waits for."""
    resumes: bool = False
    """Whether a response has come, and the task that waited for it has not run since."""
    is_observer_call: bool = False
    """Whether the handler is an observer, which may not release the lane."""
    forwarded: bool = False
    done: bool = False
    failed: bool = False
    """Whether its exception was logged."""
    answer: tuple[InFlightRequest, bytes] | None = None
    """The last request that it has sent and got a result of, with the raw result."""
    mark: Mark | None = None
    """The last message that it has got, in a traced chain."""
    started: float = 0.0
    """In seconds of the monotonic clock, in a traced chain."""
    after_answer: tuple[tuple[Callable[..., Awaitable[Any]], tuple[Any, ...]], ...] = ()
    """Functions to call once the request has been answered, see `Plugin.after_answer`."""

    def fields(self) -> dict[str, str]:
        """Log fields: the place of the handler, and the method of the message."""
        item = self.item
        method = item.call.method if isinstance(item, LaneResponse) else item.method
        return {"handler": self.handler.location, "method": method}

    def names(self) -> dict[str, object]:
        """Method and session of the message."""
        item = self.item
        if isinstance(item, LaneResponse):
            return message_names(item.call.method, item.result)
        return message_names(item.method, item.params)

    def start(self, plugin: Any) -> Any:
        """Read the message and start the handler: its coroutine, to be awaited at once. Raises
        `ValueError` if it cannot be read."""
        handler = self.handler
        message = self.message = handler.read(self.item.params)  # type: ignore[union-attr]
        if handler.takes_forward:
            return handler.function(plugin, message, self.forward)
        return handler.function(plugin, message)

    async def forward(self, changed: Any = None, /) -> Any:
        """The `forward` of the handler: sends its message on; returns the result of a request."""
        item: Any = self.item
        handler, params = self.handler, item.params
        if changed is None:
            if handler.is_decoded:
                params = encode_edited(params, self.message, handler.read)
        elif changed is not self.message or handler.is_decoded:
            params = handler.write(changed)
        self.forwarded = True
        state = self.response_state
        if state is None:
            self.port.other.neighbour.notify(item.method, params)
            return handler.no_answer
        raw = await state.send(self.port.other, item.method, params, forwards=True)
        if state.keep is not None:
            state.keep(params, raw)
        return handler.read_answer(raw)


class TaskBeside(msgspec.Struct, eq=False):
    """A task of the plugin beside its handlers."""

    cause: Mark | None
    """The last message that the handler which started it had got by then, in a traced chain."""
    done: bool = False
    answer: tuple[InFlightRequest, bytes] | None = None
    """The last request that it has sent and got a result of, with the raw result."""


def handled_message() -> Mark | None:
    """The last message that the handler running in this task has got, in a traced chain; in a task
    beside the handlers, the message that it was started for."""
    handler_call = current_handler_call.get()
    if handler_call is not None:
        return None if handler_call.done else handler_call.mark
    task = current_task.get()
    return None if task is None or task.done else task.cause


def leave_handler_call() -> TaskBeside:
    """Make this task one of the plugin, beside its handlers, until it is `done`. If a handler has
    started it, its messages have the handled one as their cause, its log lines the session."""
    handler_call, starter = current_handler_call.get(), current_task.get()
    if handler_call is not None:
        task = TaskBeside(handler_call.mark)
        names = handler_call.names()
        _session.set({"session": names["session"]} if "session" in names else {})
        current_handler_call.set(None)
    else:
        task = TaskBeside(None if starter is None else starter.cause)
    current_task.set(task)
    return task


def begin_worker() -> None:
    """Let go of the handler or task, perhaps of another plugin, that has started this worker by a
    message."""
    current_handler_call.set(None)
    current_task.set(None)
    _session.set(_NONE)


def _context() -> dict[str, object]:
    """Method and session of the message that is being handled, for the log."""
    handler_call = current_handler_call.get()
    if handler_call is None or handler_call.done:
        return dict(_session.get())
    return handler_call.names()


def current_session() -> str | None:
    """The session of the message that is being handled, or that this task was started for."""
    session = _context().get("session")
    return session if isinstance(session, str) else None


class HandlerResponse(AwaitedResponse):
    """The response to a request of the plugin."""

    handler_call: HandlerCall | None = None
    """The handler that waits; None for another task of the plugin."""
    forwards: bool = False
    """Whether the request is the handled message, forwarded."""


bind_context(_context)
_NONE: Final[Mapping[str, object]] = MappingProxyType({})
_session: ContextVar[Mapping[str, object]] = ContextVar("_session", default=_NONE)
current_task: ContextVar[TaskBeside | None] = ContextVar("current_task", default=None)
current_handler_call: ContextVar[HandlerCall | None] = ContextVar(
    "current_handler_call", default=None
)
