"""The two ports of a plugin, and the terminus behind an agent.

While its lane is free, a message without a handler, observer or tap is forwarded at once, at the
cost of one set lookup; others are queued in the lane. Nothing in this module waits.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final, Literal, Protocol

from conductor.acp import session_id_of
from conductor.errors import RequestCancelled
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import (
    METHOD_NOT_FOUND,
    Payload,
    encode_error,
    exception_to_error,
)
from conductor.jsonrpc.notification_batch import SESSION_UPDATE, NotificationBatch
from conductor.plugins.lane import Lane, LaneItem, LaneNotification, LaneRequest, LaneResponse
from conductor.proxy.handlers import ALL_METHODS
from conductor.proxy.middleware import Handler
from conductor.proxy.peers import NotificationTap
from conductor.routing.port import UnconnectedPort
from conductor.routing.stage import StagedPort
from conductor.routing.trace import Tracer

__all__ = ["CANCELLED_ERROR", "AgentTerminus", "PluginPort", "port_pair"]

CANCELLED_ERROR: Final = exception_to_error(RequestCancelled())


class LaneOwner(Protocol):
    """The scheduler that serves the lanes of two ports."""

    name: str
    """Name of the component."""

    def schedule(self, port: PluginPort) -> None:
        """Assign a worker to this port's lane."""

    def cancel(self, call: InFlightRequest) -> None:
        """Cancel a request that waits in no lane."""

    def unread_bytes(self, port: PluginPort) -> int:
        """Bytes that came through this port and wait outside the chain to be read."""

    def deliver(self, port: PluginPort, item: LaneResponse) -> bool:
        """Give a response to what waits for it; false if it has to wait for its lane."""

    def discard(self, port: PluginPort, item: LaneItem) -> None:
        """Handle a message that arrives after the end of the plugin."""


class PluginPort(StagedPort):
    """One port of a plugin: messages enter here, are queued in `lane` and leave through `other`.

    `source` is the peer that sends the messages of this port.
    """

    __slots__ = (
        "_last_released",
        "_owner",
        "_taps",
        "_withheld",
        "closed",
        "handled_bytes",
        "handlers",
        "intercepted",
        "lane",
        "needs_check",
        "observer",
        "other",
        "queued",
        "source",
        "started",
        "tracer",
    )

    other: PluginPort

    def __init__(
        self,
        owner: LaneOwner,
        source: Literal["client", "agent"],
        lane: Lane,
        handlers: Iterable[Handler],
    ) -> None:
        super().__init__()
        self._owner = owner
        self.source = source
        self.lane: Lane = lane
        self.closed: bool = False
        self.started: bool = False
        """Whether the plugin has started: `initialize` is queued until then."""
        self.needs_check: bool = False
        """Whether there are taps or withheld updates."""
        self.tracer: Tracer | None = None
        self.handled_bytes: int = 0
        """Bytes of the params of requests with a running handler."""
        self.queued: dict[InFlightRequest, LaneRequest] = {}
        """Requests with a handler that wait in the lane."""
        self.intercepted: Container[str] = ()
        self._taps: dict[str, list[NotificationTap]] = {}
        self._withheld: dict[str, list[LaneNotification]] = {}
        self._last_released: dict[str, LaneNotification] = {}
        """The last update from the plugin that is in the lane, by session."""
        self.use_handlers(handlers)

    @property
    def component_name(self) -> str:
        return self._owner.name

    def sender_of(self, method: str) -> str:
        is_passed = method not in self.other.intercepted
        return (is_passed and self.other.neighbour.sender_of(method)) or self._owner.name

    def sender(self, method: str) -> str:
        """The name of the component that sends this port messages of this method, else its side."""
        return self.neighbour.sender_of(method) or self.source

    def use_handlers(self, handlers: Iterable[Handler]) -> None:
        """Use those of these handlers that are for messages of this port, and no others."""
        own = {handler.method: handler for handler in handlers if self.source in handler.senders}
        self.observer: Handler | None = own.pop(ALL_METHODS, None)
        self.handlers: dict[str, Handler] = own
        self._update_intercepted()

    def deliver_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        if not self.lane.held and method not in self.intercepted:
            self.other.neighbour.request(call, method, params)
            return
        call.target = self
        item = LaneRequest(call, method, None if params is None else bytes(params))
        if method in self.handlers:
            self.queued[call] = item
        self._enqueue(item)

    def deliver_notification(self, method: str, params: Payload | None) -> None:
        if not self.lane.held and (method not in self.intercepted or self._skips(method, params)):
            self.other.neighbour.notify(method, params)
        else:
            self._enqueue(LaneNotification(method, None if params is None else bytes(params)))

    def deliver_batch(self, notifications: NotificationBatch) -> None:
        method = notifications.method
        if not self.lane.held and (
            method not in self.intercepted
            or (
                self._filters(method)
                and all(self._skips(method, each) for each in notifications.params)
            )
        ):
            self.other.neighbour.notify_batch(notifications)
        elif self.closed:
            for each in notifications.params:
                self.deliver_notification(method, each)
        else:
            items = [LaneNotification(method, bytes(each)) for each in notifications.params]
            if self.tracer is not None and (mark := self.tracer.current) is not None:
                for index, item in enumerate(items):
                    item.mark = mark.part(index)
            if self.lane.put_batch(items):
                self._owner.schedule(self)

    def _filters(self, method: str) -> bool:
        handler = self.handlers.get(method)
        return handler is not None and handler.accepts is not None and not self.closed

    def _skips(self, method: str, params: Payload | None) -> bool:
        """Whether the handler of a notification does not accept it, and nothing else sees it."""
        if not self.started or self.needs_check or self.observer is not None or self.closed:
            return False
        handler = self.handlers.get(method)
        return handler is not None and handler.accepts is not None and not handler.accepts(params)

    def deliver_response(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        if not self.lane.held and call.source is not self and self.observer is None:
            self.other.neighbour.respond(call, result, error)
        else:
            item = LaneResponse(
                call,
                None if result is None else bytes(result),
                None if error is None else bytes(error),
                None if self.tracer is None else self.tracer.current,
            )
            if not self._owner.deliver(self, item):
                self._enqueue(item)

    def deliver_cancel(self, call: InFlightRequest) -> None:
        item = self.queued.pop(call, None)
        if item is None:
            self._owner.cancel(call)
        else:  # past the lane (lane rule 6)
            item.answered = True
            self.neighbour.respond(call, None, CANCELLED_ERROR)

    def backlog(self) -> int:
        """Bytes queued in the lane, or behind the plugin, which forwards unhandled messages."""
        return max(self.lane.size, self.other.neighbour.backlog())

    def unread(self) -> int:
        return max(self._owner.unread_bytes(self), self.other.neighbour.unread())

    def forward_unchanged(self, item: LaneItem) -> None:
        """Forward a message unchanged."""
        if item.mark is not None and self.tracer is not None:
            before, self.tracer.current = self.tracer.current, item.mark
            try:
                self._forward(item)
            finally:
                self.tracer.current = before
        else:
            self._forward(item)

    def _forward(self, item: LaneItem) -> None:
        neighbour = self.other.neighbour
        if type(item) is LaneNotification:
            neighbour.notify(item.method, item.params)
        elif type(item) is LaneRequest:
            neighbour.request(item.call, item.method, item.params)
        elif type(item) is LaneResponse:
            neighbour.respond(item.call, item.result, item.error)

    # -- taps --------------------------------------------------------------------------------------

    def add_tap(self, method: str, tap: NotificationTap) -> Callable[[], None]:
        """Show `tap` every notification of this method; returns a function that removes it."""
        self._taps.setdefault(method, []).append(tap)
        self._update_intercepted()

        def remove() -> None:
            taps = self._taps.get(method, [])
            if tap in taps:
                taps.remove(tap)
            if not taps:
                self._taps.pop(method, None)
            self._update_intercepted()

        return remove

    def is_withheld(self, item: LaneNotification) -> bool:
        """Show a notification to the taps; returns whether it is dropped or withheld."""
        if not item.already_observed:
            withholding = [tap(item.params) for tap in tuple(self._taps.get(item.method, ()))]
            if any(withholding):
                return True
        if not self._withheld or item.method != SESSION_UPDATE:
            return False
        held = self._withheld.get(session_id_of(item.params) or "")
        if held is None:
            return False
        item.already_observed = True
        held.append(item)
        return True

    # -- updates withheld until their session is open ----------------------------------------------

    def withhold_updates(self, session_id: str) -> None:
        """Withhold the updates of this session from now on."""
        self._withheld.setdefault(session_id, [])
        self._update_intercepted()

    def withhold_own_update(self, session_id: str, params: bytes) -> bool:
        """Withhold an update from the plugin, if those of its session are withheld; queue it, if
        released ones of the plugin are still in the lane."""
        item = LaneNotification(SESSION_UPDATE, params, already_observed=True, from_plugin=True)
        held = self._withheld.get(session_id)
        if held is not None:
            held.append(item)
        elif session_id in self._last_released:
            self._last_released[session_id] = item
            self._enqueue(item)
        else:
            return False
        return True

    @property
    def withholds_updates(self) -> bool:
        """Whether updates of any session are withheld, or released and still in the lane."""
        return bool(self._withheld or self._last_released)

    def release_updates(self, session_id: str) -> None:
        """Queue the withheld updates of a session in front of the lane."""
        items = self._withheld.pop(session_id, [])
        own = [item for item in items if item.from_plugin]
        if own:
            self._last_released[session_id] = own[-1]
        if self.lane.put_back(items):
            self._owner.schedule(self)
        self._update_intercepted()

    def forward_own_update(self, item: LaneNotification) -> None:
        """Forward an update from the plugin that was in the lane."""
        self.forward_unchanged(item)
        for session_id, last in tuple(self._last_released.items()):
            if last is item:
                del self._last_released[session_id]

    def open(self) -> None:
        """Stop queueing `initialize`: the plugin has started."""
        self.started = True
        self._update_intercepted()

    def close(self) -> list[LaneItem]:
        """Stop handling; returns the unhandled messages."""
        withheld: list[LaneItem] = [item for items in self._withheld.values() for item in items]
        self._withheld.clear()
        self._last_released.clear()
        self.queued.clear()
        self.closed = True
        return withheld + self.lane.close()

    # ----------------------------------------------------------------------------------------------

    def _enqueue(self, item: LaneItem) -> None:
        if self.tracer is not None:
            item.mark = self.tracer.current
        if self.closed:
            self._owner.discard(self, item)
        elif self.lane.put(item):
            self._owner.schedule(self)

    def _update_intercepted(self) -> None:
        self.needs_check = bool(self._taps or self._withheld)
        if self.observer is not None:
            self.intercepted = _all_methods
        else:
            updates = (SESSION_UPDATE,) if self._withheld else ()
            first = () if self.started else ("initialize",)
            self.intercepted = frozenset((*self.handlers, *self._taps, *updates, *first))


def port_pair(owner: LaneOwner, handlers: Iterable[Handler]) -> tuple[PluginPort, PluginPort]:
    """The ports toward the client and toward the agent, with the handlers of each."""
    handlers = tuple(handlers)
    client_port = PluginPort(owner, "client", Lane("toward the agent"), handlers)
    agent_port = PluginPort(owner, "agent", Lane("toward the client"), handlers)
    client_port.other, agent_port.other = agent_port, client_port
    return client_port, agent_port


class _AllMethods:
    def __contains__(self, method: object) -> bool:
        return True


_all_methods: Final = _AllMethods()


class AgentTerminus(UnconnectedPort):
    """The port behind an agent: answers unhandled requests with "Method not found"."""

    __slots__ = ("_back",)

    def __init__(self, back: PluginPort) -> None:
        super().__init__()
        self._back = back

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        error = encode_error(METHOD_NOT_FOUND, "Method not found", method)
        self._back.neighbour.respond(call, None, error)
