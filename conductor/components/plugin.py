"""A component that runs in the conductor's own process: a `Proxy` or an `Agent`.

It needs no envelope and no ids: its two sides are objects. A message that it does not handle goes
straight on while the lane is free, at the price of a dictionary look-up. The lane rules (design §5)
are kept here and in `turns`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import attrs
import trio

from conductor.components.base import Component, Host
from conductor.components.turns import Turn, Waiter, current_turn
from conductor.connection.calls import Call
from conductor.connection.lanes import Answer, Item, Lane, Notification, Request
from conductor.errors import LocalProtocolError, RequestCancelled, RequestError, StartError
from conductor.log import Logger, get_logger
from conductor.messages import (
    METHOD_NOT_FOUND,
    Payload,
    encode_error,
    error_of,
    request_error,
)
from conductor.proxy.base import Plugin
from conductor.proxy.codec import decode_params, decode_result, encode, invalid_params
from conductor.proxy.declare import Handler
from conductor.proxy.peers import Answered, Peer
from conductor.routing.sides import Side

__all__ = ["PluginComponent", "PluginSide"]

_HELD_TOO_LONG = 5.0
"""Seconds after which a lane that does not move is logged."""


class PluginSide(Side):
    """One side of a plugin: what is put here travels in `lane`, and leaves through `other`."""

    __slots__ = ("_component", "handlers", "lane", "other")

    other: PluginSide

    def __init__(
        self, component: PluginComponent, lane: Lane, handlers: dict[str, Handler]
    ) -> None:
        super().__init__()
        self._component = component
        self.lane = lane
        self.handlers = handlers

    def request(self, call: Call, method: str, params: Payload | None) -> None:
        if not self.lane.held and method not in self.handlers:
            self.pass_request(call, method, params)
            return
        call.target = self
        self._put(Request(call, method, None if params is None else bytes(params)))

    def notify(self, method: str, params: Payload | None) -> None:
        if not self.lane.held and method not in self.handlers:
            self.other.neighbour.notify(method, params)
        else:
            self._put(Notification(method, None if params is None else bytes(params)))

    def notify_run(self, method: str, params: list[Payload]) -> None:
        if not self.lane.held and method not in self.handlers:
            self.other.neighbour.notify_run(method, params)
        else:
            for each in params:
                self.notify(method, each)

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        if not self.lane.held and call.source is not self:
            self.other.neighbour.respond(call, result, error)
        else:
            self._put(
                Answer(
                    call,
                    None if result is None else bytes(result),
                    None if error is None else bytes(error),
                )
            )

    def cancel(self, call: Call) -> None:
        self._component.cancel(call)

    def pass_request(self, call: Call, method: str, params: Payload | None) -> None:
        self.other.neighbour.request(call, method, params)

    def _put(self, item: Item) -> None:
        if self.lane.put(item):
            self._component.serve(self)


class _AgentEnd(Side):
    """What is behind an agent: a request that nobody handled is answered."""

    __slots__ = ("_back",)

    def __init__(self, back: PluginSide) -> None:
        super().__init__()
        self._back = back

    def request(self, call: Call, method: str, params: Payload | None) -> None:
        error = encode_error(METHOD_NOT_FOUND, "Method not found", method)
        self._back.neighbour.respond(call, None, error)

    def notify(self, method: str, params: Payload | None) -> None:
        pass

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        pass

    def cancel(self, call: Call) -> None:
        pass


@attrs.define(eq=False)
class PluginComponent(Component):
    """Runs one plugin instance."""

    name: str
    plugin: Plugin
    role: Literal["proxy", "agent"]
    place: str | None = None
    client: Peer = attrs.field(init=False)
    agent: Peer = attrs.field(init=False)
    _client_side: PluginSide = attrs.field(init=False)
    _agent_side: PluginSide = attrs.field(init=False)
    _log: Logger = attrs.field(init=False)
    _host: Host = attrs.field(init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _ready: bool = attrs.field(default=False, init=False)
    _waiting_sides: list[PluginSide] = attrs.field(factory=list, init=False)
    _idle: list[Turn] = attrs.field(factory=list, init=False)
    _sides: dict[str, PluginSide] = attrs.field(init=False)
    _waiters: dict[Call, Waiter] = attrs.field(factory=dict, init=False)
    _askers: dict[Call, Answered] = attrs.field(factory=dict, init=False)
    """What is called with the answers to requests that nobody waits for (`Peer.ask`)."""
    _deferred: dict[Call, Callable[[], None]] = attrs.field(factory=dict, init=False)
    """Requests that are answered later, and what is called when one is cancelled."""
    _running: dict[Call, Turn] = attrs.field(factory=dict, init=False)
    _settled: trio.Event = attrs.field(factory=trio.Event, init=False)
    _closing: trio.Event = attrs.field(factory=trio.Event, init=False)
    _stop: trio.Event = attrs.field(factory=trio.Event, init=False)
    _ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    _active: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self._log = get_logger(component=self.name)
        by_sender: dict[str, dict[str, Handler]] = {"client": {}, "agent": {}}
        for handler in self.plugin._acp_handlers:
            for sender in handler.senders:
                by_sender[sender][handler.method] = handler
        to_agent, to_client = Lane("toward the agent"), Lane("toward the client")
        self._client_side = PluginSide(self, to_agent, by_sender["client"])
        self._agent_side = PluginSide(self, to_client, by_sender["agent"])
        self._client_side.other, self._agent_side.other = self._agent_side, self._client_side
        if self.role == "agent":
            self._agent_side.neighbour = _AgentEnd(self._client_side)
        self.client = self._peer("client", self._client_side)
        self.agent = self._peer("agent", self._agent_side)
        self._sides = {side.lane.direction: side for side in (self._client_side, self._agent_side)}

    @property
    def client_side(self) -> Side:
        return self._client_side

    @property
    def agent_side(self) -> Side | None:
        return None if self.role == "agent" else self._agent_side

    # -- life ------------------------------------------------------------------------------------

    def prepare(self, host: Host) -> None:
        self._host = host
        self.plugin._acp_runtime = self

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                async with self.plugin.lifespan():
                    self._start_serving()
                    nursery.start_soon(self._watch_lanes)
                    await self._closing.wait()
                    await self._stop.wait()
                    nursery.cancel_scope.cancel()
        except Exception as exc:
            cause = _first(exc)
            self._log.error("plugin failed", exc_info=cause)
            reason = f"{type(cause).__name__}: {cause}"
            self._host.component_failed(self, StartError(self.name, reason, place=self.place))
        finally:
            self._nursery = None
            self._stop.set()
            self._ended.set()

    def close_input(self) -> None:
        self._closing.set()

    async def wait_finished(self) -> None:
        """Wait until nothing is being handled any more."""
        while self._running or any(side.lane.held for side in self._sides.values()):
            self._settled = trio.Event()
            await self._settled.wait()
        self._stop.set()

    async def wait_ended(self) -> None:
        await self._ended.wait()

    def terminate(self) -> None:
        self._closing.set()
        self._stop.set()

    def kill(self) -> None:
        self.terminate()
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def backlog(self) -> int:
        return max(side.lane.size for side in self._sides.values())

    # -- Runtime: what the plugin may do ---------------------------------------------------------

    def release_lane(self) -> None:
        turn = current_turn.get()
        if turn is not None:
            self._release(turn)

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(self._beside, function, args)

    @property
    def answering(self) -> bool:
        turn = current_turn.get()
        return turn is not None and turn.call is not None

    def defer(self, cancelled: Callable[[], None]) -> Answered:
        turn = current_turn.get()
        if turn is None or turn.call is None or turn.deferred:
            raise LocalProtocolError("defer() is for the handler of a request, once")
        call, back = turn.call, turn.back
        assert back is not None
        turn.deferred = True
        self._deferred[call] = cancelled

        def answer(result: bytes | None, error: bytes | None) -> None:
            if self._deferred.pop(call, None) is not None:
                back.neighbour.respond(call, result, error)

        return answer

    async def wait_room(self) -> None:
        await self._host.edge_gate().wait()

    async def _beside(self, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        current_turn.set(None)
        try:
            await function(*args)
        except Exception as exc:
            self._log.error(
                "task failed", task=getattr(function, "__qualname__", "?"), exc_info=exc
            )

    def _peer(self, name: str, side: PluginSide) -> Peer:
        async def request(method: str, params: bytes | None) -> bytes:
            return await self._request(side, method, params)

        def notify(method: str, params: bytes | None) -> None:
            side.neighbour.notify(method, params)

        def ask(method: str, params: bytes | None, answered: Answered) -> Callable[[], None]:
            call = Call(method, side)
            self._askers[call] = answered
            side.neighbour.request(call, method, params)
            return call.cancel

        return Peer(name, request, notify, ask)

    async def _request(self, side: PluginSide, method: str, params: bytes | None) -> bytes:
        """Send a request through a side and wait for its answer (lane rules 2 and 3)."""
        turn = current_turn.get()
        call = Call(method, side)
        waiter = self._waiters[call] = Waiter(turn)
        if turn is not None:
            turn.waiting.append(call)
        side.neighbour.request(call, method, params)
        if turn is not None:
            if turn.call is not None and turn.call.cancelled:
                call.cancel()
            self._release(turn)
        self._host.flusher.flush()
        try:
            await waiter.arrived.wait()
        except trio.Cancelled:
            call.cancel()
            raise
        finally:
            self._waiters.pop(call, None)
            if turn is not None and call in turn.waiting:
                turn.waiting.remove(call)
        answer = waiter.answer
        assert answer is not None
        if answer.error is not None:
            raise request_error(answer.error)
        return answer.result if answer.result is not None else b"null"

    def cancel(self, call: Call) -> None:
        """Lane rule 6: never waits in a lane."""
        if call in self._deferred:
            self._deferred[call]()
            return
        turn = self._running.get(call)
        if turn is None:
            return  # still in its lane, where the mark on the call is seen
        if turn.waiting:
            for waited_for in list(turn.waiting):
                waited_for.cancel()
        elif turn.scope is not None:
            turn.scope.cancel()

    # -- workers ---------------------------------------------------------------------------------

    def _start_serving(self) -> None:
        self._ready = True
        waiting, self._waiting_sides = self._waiting_sides, []
        for side in waiting:
            self.serve(side)

    def serve(self, side: PluginSide) -> None:
        """Somebody has to take this lane, which nobody holds."""
        if not self._ready:
            self._waiting_sides.append(side)
        elif self._idle:
            turn = self._idle.pop()
            turn.lane = side.lane
            turn.wake.set()
        elif self._nursery is not None:
            self._nursery.start_soon(self._work, side.lane)
        self._active.set()

    def _release(self, turn: Turn) -> None:
        """Let the lane of a handler go on without it."""
        lane, turn.lane = turn.lane, None
        if lane is not None:
            self.serve(self._sides[lane.direction])

    async def _work(self, lane: Lane) -> None:
        turn = Turn(lane)
        current_turn.set(turn)
        while True:
            held = turn.lane
            item = held.take() if held is not None else None
            if held is None or item is None:
                turn.lane = None
                await self._rest(turn)
                continue
            side = self._sides[held.direction]
            if type(item) is Answer:
                self._answer(turn, side, item)
            elif item.method not in side.handlers:  # type: ignore[union-attr]
                _pass_on(side, item)
            elif type(item) is Request:
                await self._handle_request(turn, side, item)
            elif type(item) is Notification:
                await self._handle_notification(turn, side, item)

    async def _rest(self, turn: Turn) -> None:
        self._host.flusher.flush()
        self._host.flusher.made_room()
        turn.wake = trio.Event()
        self._idle.append(turn)
        self._settled.set()
        await turn.wake.wait()

    def _answer(self, turn: Turn, side: PluginSide, item: Answer) -> None:
        """An answer goes to whoever waits for it, with the lane, or further on."""
        if item.call.source is not side:
            _pass_on(side, item)
            return
        answered = self._askers.pop(item.call, None)
        if answered is not None:
            try:
                answered(item.result, item.error)
            except Exception as exc:
                self._log.error("answer was not handled", method=item.call.method, exc_info=exc)
            return
        waiter = self._waiters.get(item.call)
        if waiter is None:
            return  # nobody waits any more
        waiter.answer = item
        waiter.arrived.set()
        other = waiter.turn
        if other is None:
            return
        other.waiting.remove(item.call)
        if not other.waiting and other.lane is None:
            turn.lane, other.lane = None, turn.lane

    async def _handle_request(self, turn: Turn, side: PluginSide, item: Request) -> None:
        call = item.call
        handler = side.handlers[item.method]
        if call.cancelled:
            self._reply(side, call, RequestCancelled())
            return
        turn.call, turn.back, turn.place = call, side, handler.place
        turn.deferred = False
        turn.scope = trio.CancelScope()
        self._running[call] = turn
        try:
            try:
                message = decode_params(item.params, handler.annotation)
            except ValueError as exc:
                side.neighbour.respond(call, None, invalid_params(item.method, exc))
                return
            with turn.scope:
                result = await self._call(
                    handler, message, self._forward_request(side, item, handler)
                )
                if not turn.deferred:
                    side.neighbour.respond(call, encode(result) or b"null", None)
                call = None  # type: ignore[assignment]
            if call is not None and turn.scope.cancelled_caught:
                self._reply(side, call, RequestCancelled())
        except RequestError as exc:
            self._reply(side, item.call, exc)
        except Exception as exc:
            self._log_failure(handler, item.method, item.params, exc)
            if self.plugin.on_error == "pass" and not turn.waiting:
                side.pass_request(item.call, item.method, item.params)
            else:
                self._reply(side, item.call, exc)
        finally:
            del self._running[item.call]
            turn.call = turn.scope = None
            turn.waiting.clear()

    async def _handle_notification(self, turn: Turn, side: PluginSide, item: Notification) -> None:
        handler = side.handlers[item.method]
        turn.place = handler.place
        forwarded = False

        async def forward(message: Any = None) -> None:
            nonlocal forwarded
            forwarded = True
            params = item.params if message is None else encode(message)
            side.other.neighbour.notify(item.method, params)

        try:
            await self._call(handler, decode_params(item.params, handler.annotation), forward)
        except Exception as exc:
            self._log_failure(handler, item.method, item.params, exc)
            if self.plugin.on_error == "pass" and not forwarded:
                _pass_on(side, item)

    def _forward_request(
        self, side: PluginSide, item: Request, handler: Handler
    ) -> Callable[..., Awaitable[Any]]:
        async def forward(message: Any = None) -> Any:
            params = item.params if message is None else encode(message)
            raw = await self._request(side.other, item.method, params)
            return decode_result(raw, handler.result_type())

        return forward

    async def _call(self, handler: Handler, message: Any, forward: Any) -> Any:
        if handler.takes_forward:
            return await handler.function(self.plugin, message, forward)
        return await handler.function(self.plugin, message)

    def _reply(self, side: PluginSide, call: Call, exc: Exception) -> None:
        side.neighbour.respond(call, None, error_of(exc))

    def _log_failure(
        self, handler: Handler, method: str, params: bytes | None, exc: Exception
    ) -> None:
        self._log.error(
            "handler failed",
            plugin=type(self.plugin).__name__,
            handler=handler.place,
            method=method,
            session=_session_of(params),
            exc_info=exc,
        )

    async def _watch_lanes(self) -> None:
        """Log a lane that does not move, with the handler that holds it (lane rule 4)."""
        while True:
            await self._active.wait()
            if not any(side.lane.held for side in self._sides.values()):
                self._active = trio.Event()
                continue
            before = {side.lane.direction: side.lane.turns for side in self._sides.values()}
            await trio.sleep(_HELD_TOO_LONG)
            stuck = [
                side.lane
                for side in self._sides.values()
                if side.lane.held and side.lane.turns == before[side.lane.direction]
            ]
            for lane in stuck:
                holder = next((turn for turn in self._running.values() if turn.lane is lane), None)
                place = holder.place if holder is not None else "a notification handler"
                self._log.warning("lane is held", lane=lane.direction, seconds=5, handler=place)


def _pass_on(side: PluginSide, item: Item) -> None:
    match item:
        case Request(call, method, params):
            side.pass_request(call, method, params)
        case Notification(method, params):
            side.other.neighbour.notify(method, params)
        case Answer(call, result, error):
            side.other.neighbour.respond(call, result, error)


def _session_of(params: bytes | None) -> str | None:
    try:
        value = decode_params(params, dict).get("sessionId")
    except (ValueError, AttributeError):
        return None
    return value if isinstance(value, str) else None


def _first(exc: BaseException) -> BaseException:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc
