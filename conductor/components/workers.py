"""The tasks that serve a plugin's two lanes.

A worker serves a lane until it is empty. When its handler starts to wait for an answer, the lane is
given to another worker; when the answer comes, the worker that serves the answer's lane gives that
lane to the handler that waits. So there are as many workers as handlers that wait, plus one per
lane, and no task is started for a message.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs
import msgspec
import trio

from conductor.components.handling import CANCELLED, Handling
from conductor.components.lane_watch import LaneWatch
from conductor.components.observing import Numbering
from conductor.components.plugin_errors import call_plugin
from conductor.components.plugin_side import UPDATE, AgentEnd, PluginSide, two_sides
from conductor.components.turns import Answering, Turn, Waiter, current_turn
from conductor.connection.calls import Call
from conductor.connection.lanes import Answer, Item, Lane, Notification, Request
from conductor.connection.pump import Flusher
from conductor.errors import ConnectionClosed, LocalProtocolError, RequestCancelled
from conductor.log import Logger
from conductor.messages import INTERNAL_ERROR, encode_error, request_error
from conductor.proxy.base import Plugin
from conductor.proxy.declare import Handler
from conductor.proxy.peers import Answered
from conductor.routing.failure import Failure
from conductor.session_ids import session_of

__all__ = ["Workers"]

_OPENS_SESSION = ("session/new", "session/fork")
_CLOSING = Failure.plain(encode_error(INTERNAL_ERROR, "The chain ended before this was answered"))


@attrs.define(eq=False, repr=False)
class _Idle:
    lane: Lane | None = None
    wake: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False, repr=False)
class Workers:
    """Serves the lanes of one plugin, from `open` to `close`."""

    name: str
    plugin: Plugin
    start_timeout: float
    log: Logger
    is_agent: bool
    client_side: PluginSide = attrs.field(init=False)
    agent_side: PluginSide = attrs.field(init=False)
    handling: Handling = attrs.field(init=False)
    askers: dict[Call, Answered] = attrs.field(factory=dict, init=False)
    """What is called with the answers to requests that nobody waits for (`Peer.ask`)."""
    settled: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set, and to be replaced, whenever a worker has nothing left to do."""
    _flusher: Flusher = attrs.field(init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _closed: bool = attrs.field(default=False, init=False)
    _why_closed: Failure | None = attrs.field(default=None, init=False)
    """The error for what is not answered any more, once it is known."""
    _cut: list[tuple[PluginSide, Request, bool]] = attrs.field(factory=list, init=False)
    """What waits for that, and whether it was forwarded."""
    _unserved: list[PluginSide] = attrs.field(factory=list, init=False)
    _idle: list[_Idle] = attrs.field(factory=list, init=False)
    queued: dict[Call, tuple[PluginSide, Request]] = attrs.field(factory=dict, init=False)
    """Requests for handlers that wait in a lane."""
    _waiters: dict[Call, Waiter] = attrs.field(factory=dict, init=False)
    _side_of: dict[Lane, PluginSide] = attrs.field(init=False)
    holders: dict[Lane, Turn] = attrs.field(factory=dict, init=False)
    """The last handler that held each lane."""
    _watch: LaneWatch = attrs.field(init=False)
    _counting_has_failed: bool = attrs.field(default=False, init=False)
    _numbering: Numbering = attrs.field(factory=Numbering, init=False)

    def __attrs_post_init__(self) -> None:
        self.client_side, self.agent_side = two_sides(self, self.plugin._acp_handlers)
        if self.is_agent:
            self.agent_side.neighbour = AgentEnd(self.client_side)
        self._side_of = {side.lane: side for side in self.sides}
        self._watch = LaneWatch(tuple(self._side_of), self.holders, self.log)
        self.handling = Handling(
            self.name, self.plugin, self.start_timeout, self.request, self._cut_short, self.log
        )

    @property
    def sides(self) -> tuple[PluginSide, PluginSide]:
        return self.client_side, self.agent_side

    @property
    def busy(self) -> bool:
        """Whether anything is being handled, or waits for that."""
        return bool(self.handling.running) or any(side.lane.held for side in self.sides)

    def open(self, nursery: trio.Nursery, flusher: Flusher) -> None:
        """Begin to serve, with what has come so far."""
        self._nursery, self._flusher = nursery, flusher
        nursery.start_soon(self._watch.run)
        for side in self.sides:
            side.open()
        unserved, self._unserved = self._unserved, []
        for side in unserved:
            self.serve(side)

    def close(self) -> None:
        """After the last task: nothing is handled any more, neither what is here nor what comes."""
        self._nursery, self._closed = None, True
        for side in self.sides:
            for item in side.close():
                self.dispose(side, item)
        self.handling.close()
        self.queued.clear()

    def settle(self, failure: Failure | None = None) -> None:
        """Answer what was not, and whatever still comes: the plugin has failed, or only ended.

        If it has failed, the turns of prompts that it had forwarded end, too: nobody waits for
        them, and they must not go on unseen.
        """
        if self._why_closed is not None:
            return
        self._why_closed = failure or _CLOSING
        cut, self._cut = self._cut, []
        for side, item, forwarded in cut:
            error = self._why_closed.answer(item.method, delivered=forwarded)
            side.neighbour.respond(item.call, None, error)
            session = session_of(item.params) if item.method == "session/prompt" else None
            if failure is not None and forwarded and session is not None:
                params = msgspec.json.encode({"sessionId": session})
                side.other.neighbour.notify("session/cancel", params)

    # -- Owner: what the sides ask for -------------------------------------------------------------

    def serve(self, side: PluginSide) -> None:
        if self._nursery is None:
            if not self._closed:
                self._unserved.append(side)
            return
        if self._idle:
            idle = self._idle.pop()
            idle.lane = side.lane
            idle.wake.set()
        elif not self._nursery.cancel_scope.cancel_called:
            self._nursery.start_soon(self._work, side.lane)
        self._watch.active.set()

    def queue(self, side: PluginSide, item: Request) -> None:
        self.queued[item.call] = (side, item)

    def cancel(self, call: Call) -> None:
        """Lane rule 6: never waits in a lane."""
        queued = self.queued.pop(call, None)
        if queued is None:
            self.handling.cancel(call)
            return
        side, item = queued
        item.settled = True
        side.neighbour.respond(call, None, CANCELLED)

    def dispose(self, side: PluginSide, item: Item) -> None:
        """Nobody handles messages any more; those that nobody wanted to handle pass."""
        if type(item) is Answer:
            if item.call.source is not side:
                side.pass_on(item)
        elif item.method not in side.handlers or (type(item) is Notification and item.own):
            side.pass_on(item)
        elif type(item) is Request and not item.settled:
            self._cut_short(side, item, False)

    def _cut_short(self, side: PluginSide, item: Request, forwarded: bool) -> None:
        if self._why_closed is None:
            self._cut.append((side, item, forwarded))
        else:
            error = self._why_closed.answer(item.method, delivered=forwarded)
            side.neighbour.respond(item.call, None, error)

    def unread_bytes(self, side: PluginSide) -> int:
        """Of what comes from the agent nothing counts: its own reading is what is waited for."""
        if side is not self.client_side:
            return 0
        return call_plugin(self._counting_failed, self._unread_of_plugin) or 0

    def _unread_of_plugin(self) -> int:
        size = self.plugin.unread_bytes()
        if not isinstance(size, int):
            raise TypeError(f"unread_bytes() returned {type(size).__name__}, not int")
        return size

    def _counting_failed(self, exc: BaseException) -> None:
        """Log it once: it is asked for whenever somebody is about to read."""
        if not self._counting_has_failed:
            self._counting_has_failed = True
            self.log.error("unread_bytes() failed; counted as 0 from now on", exc_info=exc)

    def _answer_failed(self, method: str, exc: BaseException) -> None:
        self.log.error("answer was not handled", method=method, exc_info=exc)

    # -- what handlers ask for ---------------------------------------------------------------------

    async def request(
        self, side: PluginSide, method: str, params: bytes | None, *, forwards: bool = False
    ) -> bytes:
        """Send a request through a side and wait for its answer (lane rules 2 and 3)."""
        turn = self._turn_that_may_wait(method)
        if forwards and turn is not None and turn.answering is not None and turn.answering.settled:
            raise RequestCancelled  # its own request was answered without it
        call = Call(method, side)
        waiter = self._waiters[call] = Waiter(turn, forwards)
        if turn is not None:
            turn.waiting += (call,)
            if forwards and type(turn.item) is Request:
                self._numbering.forwarded(turn.item.call, call)
        side.neighbour.request(call, method, params)
        if turn is not None:
            if turn.answering is not None and turn.answering.call.cancelled:
                call.cancel()
            self.release(turn)
            self.handling.stop_clock(turn)
        self._flusher.flush()
        try:
            await waiter.arrived.wait()
        except trio.Cancelled:
            call.cancel()
            raise
        finally:
            self._waiters.pop(call, None)
            if turn is not None:
                turn.waiting = tuple(each for each in turn.waiting if each is not call)
                self.handling.start_clock(turn)
        answer = waiter.answer
        assert answer is not None
        if answer.error is not None:
            raise request_error(answer.error)
        return answer.result if answer.result is not None else b"null"

    def notify(self, side: PluginSide, method: str, params: bytes | None) -> None:
        """Send a notification of the plugin's own through a side."""
        to_client = side is self.client_side and method == UPDATE
        if to_client and params is not None and self._keeps_own(params):
            return
        side.neighbour.notify(method, params)

    def ask(
        self, side: PluginSide, method: str, params: bytes | None, answered: Answered
    ) -> Callable[[], None]:
        call = Call(method, side)
        self.askers[call] = answered
        side.neighbour.request(call, method, params)
        return call.cancel

    def release(self, turn: Turn) -> None:
        """Let the lane of a handler go on without it."""
        lane, turn.lane = turn.lane, None
        if lane is not None and lane.let_go():
            self.serve(self._side_of[lane])

    def _turn_that_may_wait(self, method: str) -> Turn | None:
        if self._nursery is None:
            if self._closed:
                raise ConnectionClosed(f"{method}: the chain is ending")
            raise LocalProtocolError(
                f"{type(self.plugin).__name__}: {method} cannot be sent before lifespan() has "
                f"yielded, since nothing is handled yet; send it with start_soon()"
            )
        turn = current_turn.get()
        if turn is None or turn.done:
            return None
        if turn.observing:
            raise LocalProtocolError(
                f"{turn.place}: an observer holds up what it sees and may not wait for an answer; "
                f"send {method} with start_soon()"
            )
        return turn

    # -- workers -----------------------------------------------------------------------------------

    async def _work(self, lane: Lane | None) -> None:
        handling = self.handling
        while True:
            if lane is None or (item := lane.take()) is None:
                lane = await self._rest()
                continue
            side = self._side_of[lane]
            if side.observer is not None:
                await self._observe(lane, side, side.observer, item)
            if type(item) is Answer:
                lane = self._answer(lane, side, item)
                continue
            if type(item) is Request:
                self.queued.pop(item.call, None)
                if item.settled:
                    continue
            elif side.special and side.kept(item):
                continue
            elif item.own:
                side.pass_on(item)
                continue
            handler = side.handlers.get(item.method)
            if handler is None:
                side.pass_on(item)
                continue
            turn = self.holders[lane] = Turn(handler, lane, side, item)
            current_turn.set(turn)
            if type(item) is Notification:
                # Inline: calls and coroutines of our own would cost a tenth of all this.
                try:
                    message = handler.read(item.params)
                    if handler.takes_forward:
                        turn.coroutine = handler.function(
                            self.plugin, message, turn.forward_notification
                        )
                    else:
                        turn.coroutine = handler.function(self.plugin, message)
                    await turn.coroutine
                except BaseException as exc:
                    handling.notification_failed(turn, item, exc)
            else:
                await handling.run_request(turn, item)
                for session in turn.answering.opened if turn.answering is not None else ():
                    self.agent_side.let_updates_go(session)
            turn.done = True
            lane, turn.lane = turn.lane, None

    async def _rest(self) -> Lane | None:
        current_turn.set(None)
        self._flusher.flush()
        self._flusher.made_room()
        idle = _Idle()
        self._idle.append(idle)
        self.settled.set()
        await idle.wake.wait()
        return idle.lane

    def _answer(self, lane: Lane, side: PluginSide, item: Answer) -> Lane | None:
        """An answer goes to whoever waits for it, with the lane, or further on.

        Returns the lane, unless it went.
        """
        if item.call.source is not side:
            side.pass_on(item)
            return lane
        answered = self.askers.pop(item.call, None)
        if answered is not None:
            failed = partial(self._answer_failed, item.call.method)
            call_plugin(failed, answered, item.result, item.error)
            return lane
        waiter = self._waiters.get(item.call)
        if waiter is None or waiter.answer is not None:
            return lane  # nobody waits any more
        waiter.answer = item
        waiter.arrived.set()
        turn = waiter.turn
        if turn is None or turn.done:
            return lane
        turn.waiting = tuple(each for each in turn.waiting if each is not item.call)
        if waiter.forwards and turn.answering is not None:
            turn.answering.answer = item
            self._open_session(turn.answering, item)
        if turn.waiting or turn.lane is not None:
            return lane
        turn.lane = lane
        self.holders[lane] = turn
        return None

    def _open_session(self, answering: Answering, item: Answer) -> None:
        """The first update of a session follows the answer that opens it, whatever its handler
        waits for until it passes the answer on."""
        if item.call.method in _OPENS_SESSION:
            self._keep_updates(answering, session_of(item.result))

    def _keep_updates(self, answering: Answering, session: str | None) -> None:
        if session is not None and session not in answering.opened:
            answering.opened += (session,)
            self.agent_side.keep_updates(session)

    def _keeps_own(self, params: bytes) -> bool:
        """Hold back an update of the plugin's own for a session that the client does not know yet.

        Where the handler makes the session itself, any that it writes about may be the new one.
        """
        turn = current_turn.get()
        answering = None if turn is None or turn.done else turn.answering
        opens = answering is not None and answering.call.method in _OPENS_SESSION
        if not opens and not self.agent_side.keeps_updates:
            return False
        session = session_of(params)
        if session is None:
            return False
        if opens and answering is not None:
            self._keep_updates(answering, session)
        return self.agent_side.keep_own(session, params)

    async def _observe(self, lane: Lane, side: PluginSide, handler: Handler, item: Item) -> None:
        message = self._numbering.shown(side.source, item)
        if message is not None:
            turn = self.holders[lane] = Turn(handler, lane, side, item)
            current_turn.set(turn)
            await self.handling.observe(turn, message)
            turn.done = True
