"""Runs a plugin's handlers: what they get, what becomes of what they return and raise.

Every request that reaches a handler is answered exactly once, however the handler ends (lane rules
5 to 7); when the plugin ends first, `workers` answers, who also decides when a handler runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from types import CoroutineType
from typing import Any, Final, TypeAlias

import attrs
import trio

from conductor.components.plugin_errors import call_plugin, contain, split
from conductor.components.plugin_side import PluginSide
from conductor.components.turns import Answering, Turn, current_turn
from conductor.connection.calls import Call
from conductor.connection.lanes import Answer, Notification, Request
from conductor.errors import (
    LocalProtocolError,
    RequestCancelled,
    RequestError,
    StartError,
    describe,
    details_are_withheld,
)
from conductor.log import Logger
from conductor.masking import masked
from conductor.messages import INTERNAL_ERROR, Payload, encode_error, error_of
from conductor.proxy.base import Forward, Plugin
from conductor.proxy.codec import decode_answer, encode, invalid_params
from conductor.proxy.peers import Answered
from conductor.proxy.raw import RawMessage
from conductor.proxy.restarts import see_restart
from conductor.proxy.sessions import ENDS, OPENS, forget, opened
from conductor.session_ids import session_of

__all__ = ["CANCELLED", "Handling"]

CANCELLED: Final = error_of(RequestCancelled())
_SESSIONS: Final = frozenset({*OPENS, *ENDS})
_Reply: TypeAlias = tuple[bytes | None, bytes | None]
"""A raw result or a raw error."""


@attrs.define(eq=False, repr=False)
class Handling:
    """The handlers of one plugin at work. `request` sends a handler's request and waits."""

    name: str
    plugin: Plugin
    start_timeout: float
    request: Callable[..., Awaitable[bytes]]
    cut: Callable[[PluginSide, Request, bool], None]
    """Takes a request that will not be answered by us, and whether it was forwarded."""
    log: Logger
    running: dict[Call, Turn] = attrs.field(factory=dict, init=False)
    """The requests whose handlers run."""
    _ending: bool = attrs.field(default=False, init=False)
    _deferred: dict[Call, tuple[PluginSide, Request, Callable[[], None]]] = attrs.field(
        factory=dict, init=False
    )
    """Requests that are answered later, and what is called when one is cancelled."""

    def call(self, turn: Turn, message: Any, forward: Forward) -> CoroutineType[Any, Any, Any]:
        """The handler's coroutine, to be awaited at once."""
        handler = turn.handler
        if handler.takes_forward:
            turn.coroutine = handler.function(self.plugin, message, forward)
        else:
            turn.coroutine = handler.function(self.plugin, message)
        return turn.coroutine

    def notification_failed(self, turn: Turn, item: Notification, exc: BaseException) -> None:
        """Deal with what the handler of a notification raised; raises what is not its failure."""

        def failed(failure: BaseException) -> None:
            self._log_failure(turn, item.method, item.params, failure)
            if self.plugin.on_error == "pass" and not turn.forwarded:
                turn.side.pass_on(item)

        contain(exc, failed)

    async def run_request(self, turn: Turn, item: Request) -> None:
        """Run the handler of a request, and answer it."""
        call, side = item.call, turn.side
        if call.cancelled:
            side.neighbour.respond(call, None, CANCELLED)
            return
        turn.answering = answering = Answering(call)
        self.running[call] = turn
        reply: _Reply | None = None
        self.start_clock(turn)
        try:
            with answering.scope as scope:
                reply = await self._reply(turn, answering, item)
            if scope.cancelled_caught and not answering.settled:
                if self._ending:
                    self.cut(side, item, turn.forwarded)
                elif trio.current_time() >= scope.deadline:
                    reply = None, error_of(self._too_slow())
                else:
                    reply = None, CANCELLED
        except BaseException as exc:
            failure, passing = split(exc)
            if failure is not None:
                reply = self._failed(turn, answering, item, failure)
            if passing is not None:
                reply = None
                if not answering.settled:
                    self.cut(side, item, turn.forwarded)
                raise passing from None
        finally:
            del self.running[call]
            if reply is not None and not answering.settled:
                self._see_session(item, reply)
                side.neighbour.respond(call, *reply)

    def start_clock(self, turn: Turn) -> None:
        """A plugin has so long for `initialize`, not counting what its successor takes."""
        if turn.answering is not None and turn.answering.call.method == "initialize":
            turn.answering.scope.deadline = trio.current_time() + self.start_timeout

    def stop_clock(self, turn: Turn) -> None:
        if turn.answering is not None:
            turn.answering.scope.deadline = float("inf")

    async def observe(self, turn: Turn, message: RawMessage) -> None:
        """Show a message to the observer; whatever that does, the message goes on."""
        try:
            turn.coroutine = turn.handler.function(self.plugin, message)
            await turn.coroutine
        except BaseException as exc:
            contain(exc, partial(self._log_failure, turn, message.method, message.payload))

    def cancel(self, call: Call) -> None:
        """Lane rule 6, for a request whose handler has begun."""
        if call in self._deferred:
            call_plugin(partial(self._cancel_failed, call), self._deferred[call][2])
            return
        turn = self.running.get(call)
        if turn is None or turn.answering is None:
            return
        if turn.waiting:
            for waited_for in turn.waiting:
                waited_for.cancel()
        else:
            turn.answering.scope.cancel()

    def answer_for(self, turn: Turn, result: Payload | None, error: Payload | None) -> None:
        """Answer a request in its handler's place, and cancel the handler."""
        answering = turn.answering
        if answering is not None and not answering.settled:
            answering.settled = True
            if answering.deferred and self._deferred.pop(answering.call, None) is None:
                return  # answered already
            turn.side.neighbour.respond(answering.call, result, error)
            answering.scope.cancel()

    def deferred(self) -> list[Request]:
        """Requests that somebody is to answer later."""
        return [item for _, item, _ in self._deferred.values()]

    def answer_deferred(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        """Answer such a request now; what was to answer it is told that nobody waits."""
        side, _, cancelled = self._deferred.pop(call)
        call_plugin(partial(self._cancel_failed, call), cancelled)
        side.neighbour.respond(call, result, error)

    def give_up_waiting(self) -> None:
        """The chain ends: no answer is of use any more to a handler that waits for one."""
        self._ending = True
        for turn in list(self.running.values()):
            if turn.waiting and turn.answering is not None:
                turn.answering.scope.cancel()

    def defer(self, cancelled: Callable[[], None]) -> Answered:
        """See `Plugin.defer`."""
        turn = current_turn.get()
        if turn is None or turn.done or turn.answering is None or turn.answering.deferred:
            raise LocalProtocolError("defer() is for the handler of a request, once")
        call, side = turn.answering.call, turn.side
        turn.answering.deferred = True
        assert type(turn.item) is Request
        self._deferred[call] = (side, turn.item, cancelled)

        def answer(result: bytes | None, error: bytes | None) -> None:
            if self._deferred.pop(call, None) is not None:
                side.neighbour.respond(call, result, error)

        return answer

    def close(self) -> None:
        """Nobody answers any more what somebody was to answer later."""
        for side, item, _ in self._deferred.values():
            self.cut(side, item, False)
        self._deferred.clear()

    # ----------------------------------------------------------------------------------------------

    def _too_slow(self) -> StartError:
        seconds = f"{self.start_timeout:g} s (start_timeout)"
        return StartError(self.name, f"it did not answer `initialize` within {seconds}")

    async def _reply(self, turn: Turn, answering: Answering, item: Request) -> _Reply | None:
        """What the handler answers; `None` if somebody else does that later."""
        handler, side = turn.handler, turn.side
        try:
            message = handler.read(item.params)
        except ValueError as exc:
            if self.plugin.on_error == "pass":
                raise
            return None, invalid_params(item.method, exc)

        async def forward(message: Any = None) -> Any:
            params = item.params if message is None else encode(message)
            turn.forwarded = True
            raw = await self.request(side.other, item.method, params, forwards=True)
            return decode_answer(raw, item.method, handler.result)

        result = await self.call(turn, message, forward)
        if item.method == "initialize":
            await see_restart(self.plugin, item.params)
        if answering.deferred:
            return None
        if result is None and _is_result(answering.answer):
            raise LocalProtocolError(
                f"the handler of {item.method!r} returned nothing, although the request was "
                f"answered: write `return await forward(…)`"
            )
        return encode(result) or b"null", None

    def _failed(
        self, turn: Turn, answering: Answering, item: Request, exc: BaseException
    ) -> _Reply | None:
        """The answer to a request whose handler raised (lane rules 5 and 7)."""
        if answering.settled:
            self._log_failure(turn, item.method, item.params, exc)
            return None
        if answering.deferred and self._deferred.pop(item.call, None) is None:
            return None  # answered already
        refusal = _request_error_in(exc)
        if refusal is not None:
            try:
                return None, error_of(refusal)
            except BaseException as broken:  # the author's data: its `__repr__`, say
                exc = broken
        self._log_failure(turn, item.method, item.params, exc)
        if self.plugin.on_error == "pass":
            if answering.answer is not None:
                return answering.answer.result, answering.answer.error
            if not turn.forwarded:
                turn.side.pass_on(item)
                return None
        data = {
            "component": self.name,
            "plugin": type(self.plugin).__name__,
        }
        if not details_are_withheld():
            data["reason"] = masked(describe(exc))
        return None, encode_error(INTERNAL_ERROR, "Internal error", data)

    def _see_session(self, item: Request, reply: _Reply) -> None:
        """Keep the `per_session` state of an opened session, drop that of an ended one."""
        if reply[0] is None or item.method not in _SESSIONS:
            return
        session = session_of(item.params)
        if item.method in OPENS:
            session = session_of(reply[0]) or session
            opened(self.plugin, () if session is None else (session,))
        elif session is not None:
            forget(self.plugin, session)

    def _cancel_failed(self, call: Call, exc: BaseException) -> None:
        self.log.error("callback of defer() failed", method=call.method, exc_info=exc)

    def _log_failure(
        self, turn: Turn, method: str, params: bytes | None, exc: BaseException
    ) -> None:
        self.log.error(
            "handler failed",
            plugin=type(self.plugin).__name__,
            handler=turn.handler.place,
            method=method,
            session=session_of(params),
            exc_info=exc,
        )


def _is_result(answer: Answer | None) -> bool:
    """Whether it is a result that says anything."""
    return answer is not None and answer.result is not None and answer.result != b"null"


def _request_error_in(exc: BaseException) -> RequestError | None:
    """The answer that an exception stands for: trio wraps what a nursery's tasks raise."""
    if isinstance(exc, RequestError):
        return exc
    if isinstance(exc, BaseExceptionGroup):
        found = [_request_error_in(each) for each in exc.exceptions]
        if None not in found:
            return found[0]
    return None
