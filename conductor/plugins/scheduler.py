"""Scheduler of a plugin's two lanes: worker tasks that take messages and run handlers.

A worker serves a lane until it is empty. When its handler starts to wait for a response, the lane
goes to another worker; the response, when its turn comes, gives its lane to the waiting handler:
`deliver` if the lane is free, else the worker that has it. So there are as many workers as waiting
handlers, plus one per lane, and no task is started per message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Final

import attrs
import msgspec
import trio

from conductor.acp import session_id_of
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.log import Logger
from conductor.plugins.dispatch import Dispatcher
from conductor.plugins.failures import FailureLog, call_plugin
from conductor.plugins.handler_call import (
    HandlerCall,
    begin_worker,
    current_handler_call,
)
from conductor.plugins.lane import Lane, LaneItem, LaneNotification, LaneRequest, LaneResponse
from conductor.plugins.outgoing_messages import ObserverIds, OutgoingMessages
from conductor.plugins.plugin_port import AgentTerminus, PluginPort, port_pair
from conductor.proxy.base import Plugin
from conductor.proxy.middleware import Handler
from conductor.routing.failure_errors import CHAIN_ENDED, FailureErrors, answer_of_gone
from conductor.routing.trace import HandlerOutcome, Mark
from conductor.transport.io_loop import Flusher

__all__ = ["LaneScheduler"]

_WARN_AFTER: Final = 5.0


@attrs.define(eq=False, repr=False)
class _IdleWorker:
    lane: Lane | None = None
    has_work: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False, repr=False)
class AbortedRequests:
    """Requests that a plugin will not answer any more, because it has ended: they get their errors
    once it is known why."""

    _errors: FailureErrors | None = attrs.field(default=None, init=False)
    """The errors for them, once known."""
    _waiting: list[tuple[PluginPort, LaneRequest, bool]] = attrs.field(factory=list, init=False)
    """Requests to be answered with `_errors`, and whether the agent may have got each."""

    def add(self, port: PluginPort, item: LaneRequest, delivered: bool) -> None:
        """Answer a request that has come in through `port`, now or in `answer`."""
        if self._errors is None:
            self._waiting.append((port, item, delivered))
        else:
            error = self._errors.answer(item.method, delivered=delivered)
            port.neighbour.respond(item.call, *answer_of_gone(item.method, error))

    def answer(self, failure: FailureErrors | None = None) -> None:
        """Answer aborted requests, now and from now on, with the errors of `failure` or "chain
        ended".

        After a failure, delivered prompts are also cancelled with `session/cancel`: their turns
        have no client that waits for them.
        """
        if self._errors is not None:
            return
        self._errors = failure or CHAIN_ENDED
        waiting, self._waiting = self._waiting, []
        for port, item, delivered in waiting:
            error = self._errors.answer(item.method, delivered=delivered)
            port.neighbour.respond(item.call, *answer_of_gone(item.method, error))
            session = session_id_of(item.params) if item.method == "session/prompt" else None
            if failure is not None and delivered and session is not None:
                params = msgspec.json.encode({"sessionId": session})
                port.other.neighbour.notify("session/cancel", params)


@attrs.define(eq=False, repr=False)
class LaneScheduler:
    """Serves the lanes of one plugin, from `open` to `close`.

    `start_timeout` is in seconds, for the handler of `initialize`. An agent (`is_agent`) has no
    successor.
    """

    name: str
    plugin: Plugin
    start_timeout: float
    failures: FailureLog
    is_agent: bool
    client_port: PluginPort = attrs.field(init=False)
    agent_port: PluginPort = attrs.field(init=False)
    dispatcher: Dispatcher = attrs.field(init=False)
    outgoing: OutgoingMessages = attrs.field(init=False)
    aborted: AbortedRequests = attrs.field(factory=AbortedRequests, init=False)
    became_idle: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when a worker becomes idle, or its handler waits; the waiter replaces it."""
    _flusher: Flusher = attrs.field(init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _closed: bool = attrs.field(default=False, init=False)
    _unscheduled: list[PluginPort] = attrs.field(factory=list, init=False)
    _idle: list[_IdleWorker] = attrs.field(factory=list, init=False)
    _port_of: dict[Lane, PluginPort] = attrs.field(init=False)
    last_handlers: dict[Lane, HandlerCall] = attrs.field(factory=dict, init=False)
    """The last handler that held each lane."""
    _slow_handler_warning: _SlowHandlerWarning = attrs.field(init=False)
    _unread_bytes_has_failed: bool = attrs.field(default=False, init=False)
    _observer_ids: ObserverIds = attrs.field(factory=ObserverIds, init=False)

    def __attrs_post_init__(self) -> None:
        self.client_port, self.agent_port = port_pair(self, self.plugin._acp_handlers)
        if self.is_agent:
            self.agent_port.neighbour = AgentTerminus(self.client_port)
        self._port_of = {port.lane: port for port in self.ports}
        self._slow_handler_warning = _SlowHandlerWarning(
            tuple(self._port_of), self.last_handlers, self.failures.log
        )
        self.outgoing = OutgoingMessages(
            self.client_port,
            self._observer_ids,
            self.release,
            self.failures,
        )
        self.dispatcher = Dispatcher(
            self.name,
            self.plugin,
            self.outgoing.request,
            self.aborted.add,
            self._use_handlers,
            self.start_timeout,
            self.failures,
        )

    @property
    def ports(self) -> tuple[PluginPort, PluginPort]:
        return self.client_port, self.agent_port

    @property
    def busy(self) -> bool:
        """Whether a message is handled or queued."""
        running = self.dispatcher.running.values()
        return any(not each.done for each in running) or self.holds_lane

    @property
    def holds_lane(self) -> bool:
        """Whether a handler holds a lane, or a message waits in one."""
        return any(port.lane.held for port in self.ports)

    def open(self, nursery: trio.Nursery, flusher: Flusher) -> None:
        """Start serving, beginning with the messages queued so far."""
        self._nursery, self._flusher = nursery, flusher
        self.outgoing.is_open = True
        nursery.start_soon(self._slow_handler_warning.run)
        for port in self.ports:
            port.open()
        unscheduled, self._unscheduled = self._unscheduled, []
        for port in unscheduled:
            self.schedule(port)

    def close(self) -> None:
        """Stop handling: queued and later messages are forwarded or answered with an error."""
        self._nursery, self._closed = None, True
        self.outgoing.close()
        for port in self.ports:
            for item in port.close():
                self.discard(port, item)
        self.dispatcher.abort_deferred()

    # -- LaneOwner, called by the ports ------------------------------------------------------------

    def schedule(self, port: PluginPort) -> None:
        if self._nursery is None:
            if not self._closed:
                self._unscheduled.append(port)
            return
        if self._idle:
            idle = self._idle.pop()
            idle.lane = port.lane
            idle.has_work.set()
        elif not self._nursery.cancel_scope.cancel_called:
            self._nursery.start_soon(self._worker, port.lane)
        self._slow_handler_warning.active.set()

    def cancel(self, call: InFlightRequest) -> None:
        self.dispatcher.cancel(call)

    def discard(self, port: PluginPort, item: LaneItem) -> None:
        """Forward a message without a handler; abort a request that has one."""
        if type(item) is LaneResponse:
            if item.call.source is not port:
                port.forward_unchanged(item)
        elif item.method not in port.handlers or (
            type(item) is LaneNotification and item.from_plugin
        ):
            port.forward_unchanged(item)
        elif type(item) is LaneRequest and not item.answered:
            self.aborted.add(port, item, False)

    def deliver(self, port: PluginPort, item: LaneResponse) -> bool:
        lane, outgoing = port.lane, self.outgoing
        if lane.held or port.observer is not None or item.call in outgoing.response_callbacks:
            return False
        self._grant(lane, outgoing.deliver(lane, port, item))
        return True

    def _grant(self, lane: Lane, waiting: HandlerCall | None) -> bool:
        """Note that a handler has got a lane with the response that it has waited for."""
        if waiting is None:
            return False
        lane.held = True
        self.last_handlers[lane] = waiting
        self._slow_handler_warning.active.set()
        return True

    def _use_handlers(self, handlers: Sequence[Handler]) -> None:
        """Replace the handlers of both ports."""
        for port in self.ports:
            port.use_handlers(handlers)

    def unread_bytes(self, port: PluginPort) -> int:
        """Bytes that the plugin sent to peers outside of the chain and that are not read yet.

        Counted once, at the client port; the agent port returns 0.
        """
        if port is not self.client_port:
            return 0
        return call_plugin(self._unread_bytes_failed, self._unread_of_plugin) or 0

    def _unread_of_plugin(self) -> int:
        size = self.plugin.unread_bytes()
        if not isinstance(size, int):
            raise TypeError(f"unread_bytes() returned {type(size).__name__}, not int")
        return size

    def _unread_bytes_failed(self, exc: BaseException) -> None:
        """Log the failure once: the value is read before every read of an edge."""
        if not self._unread_bytes_has_failed:
            self._unread_bytes_has_failed = True
            self.failures.report("unread_bytes() failed, counted as 0", exc)

    def release(self, handler_call: HandlerCall) -> None:
        """Release the lane that a handler holds."""
        lane, handler_call.lane = handler_call.lane, None
        if lane is not None and lane.release():
            self.schedule(self._port_of[lane])
        else:
            self.became_idle.set()

    # -- workers -----------------------------------------------------------------------------------

    async def _worker(self, lane: Lane | None) -> None:
        dispatcher = self.dispatcher
        begin_worker()
        while True:
            if lane is None or (item := lane.take()) is None:
                lane = await self._wait_for_work()
                continue
            port = self._port_of[lane]
            if port.observer is not None:
                await self._observe(lane, port, port.observer, item)
            if type(item) is LaneResponse:
                if self._grant(lane, self.outgoing.deliver(lane, port, item)):
                    lane = None
                continue
            if type(item) is LaneRequest:
                port.queued.pop(item.call, None)
                if item.answered:
                    continue
            elif port.needs_check and port.is_withheld(item):
                continue
            elif item.from_plugin:
                port.forward_own_update(item)
                continue
            handler = port.handlers.get(item.method)
            if handler is None or (
                handler.accepts is not None and not handler.accepts(item.params)
            ):
                port.forward_unchanged(item)
                continue
            handler_call = self.last_handlers[lane] = HandlerCall(handler, lane, port, item)
            current_handler_call.set(handler_call)
            if item.mark is not None:
                handler_call.mark, handler_call.started = item.mark, monotonic()
            if type(item) is LaneNotification:
                try:
                    await handler_call.start(self.plugin)
                except BaseException as exc:
                    dispatcher.notification_failed(handler_call, item, exc)
            else:
                await dispatcher.run_request(handler_call, item)
                for session in (
                    handler_call.response_state.created_sessions
                    if handler_call.response_state is not None
                    else ()
                ):
                    self.agent_port.release_updates(session)
            handler_call.done = True
            if item.mark is not None:
                self._trace_handler(handler_call, item.method, item.mark)
            lane, handler_call.lane = handler_call.lane, None

    def _trace_handler(self, handler_call: HandlerCall, method: str, message: Mark) -> None:
        tracer = handler_call.port.tracer
        if tracer is None:
            return
        outcome: HandlerOutcome
        if handler_call.failed:
            outcome = "failed"
        elif handler_call.forwarded:
            outcome = "forwarded"
        else:
            outcome = "dropped" if type(handler_call.item) is LaneNotification else "answered"
        location, started = handler_call.handler.location, handler_call.started
        tracer.handler_ended(self.name, method, location, message, started, monotonic(), outcome)

    async def _wait_for_work(self) -> Lane | None:
        current_handler_call.set(None)
        self._flusher.made_room()
        idle = _IdleWorker()
        self._idle.append(idle)
        self.became_idle.set()
        await idle.has_work.wait()
        return idle.lane

    async def _observe(
        self, lane: Lane, port: PluginPort, handler: Handler, item: LaneItem
    ) -> None:
        message = self._observer_ids.observed_message(port.source, item)
        if message is not None:
            handler_call = self.last_handlers[lane] = HandlerCall(
                handler, lane, port, item, is_observer_call=True
            )
            current_handler_call.set(handler_call)
            await self.dispatcher.observe(handler_call, message)
            handler_call.done = True


@attrs.define(eq=False, repr=False)
class _SlowHandlerWarning:
    """Logs handlers that hold a lane for more than 5 s, with file:line (lane rule 4): checks the
    lanes every 5 s while any is held; sleeps otherwise."""

    lanes: Sequence[Lane]
    holders: Mapping[Lane, HandlerCall]
    """The last handler that held each lane."""
    log: Logger
    active: trio.Event = attrs.field(factory=trio.Event, init=False)
    """The scheduler sets it when a lane is taken."""

    async def run(self) -> None:
        while True:
            await self.active.wait()
            self.active = trio.Event()
            while any(lane.held for lane in self.lanes):
                before = [lane.delivered for lane in self.lanes]
                await trio.sleep(_WARN_AFTER)
                for lane, delivered in zip(self.lanes, before, strict=True):
                    if lane.held and lane.delivered == delivered:
                        self._report(lane)

    def _report(self, lane: Lane) -> None:
        holder = self.holders.get(lane)
        location = holder.handler.location if holder is not None else "?"
        self.log.warning(
            "slow handler holds its lane",
            lane=lane.direction,
            seconds=_WARN_AFTER,
            handler=location,
            **({} if holder is None else holder.names()),
        )
