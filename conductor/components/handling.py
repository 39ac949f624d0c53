"""Runs a plugin's handlers: what they get, what becomes of what they return and raise.

Every request that reaches a handler is answered exactly once, however the handler ends (lane rules
5 to 7). `workers` decides when a handler runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import Any, Final, TypeAlias

import attrs

from conductor.components.plugin_side import PluginSide
from conductor.components.turns import Answering, Turn, current_turn
from conductor.connection.calls import Call
from conductor.connection.lanes import Answer, Notification, Request
from conductor.errors import LocalProtocolError, RequestCancelled, RequestError
from conductor.log import Logger
from conductor.messages import INTERNAL_ERROR, encode_error, error_of
from conductor.proxy.base import Forward, Plugin
from conductor.proxy.codec import decode_answer, encode, invalid_params, session_of
from conductor.proxy.peers import Answered
from conductor.proxy.raw import RawMessage
from conductor.proxy.sessions import ENDS, forget

__all__ = ["CANCELLED", "CLOSING", "Handling"]

CLOSING: Final = encode_error(INTERNAL_ERROR, "The chain ended before this was answered")
CANCELLED: Final = error_of(RequestCancelled())
_Reply: TypeAlias = tuple[bytes | None, bytes | None]
"""A raw result or a raw error."""


@attrs.define(eq=False)
class Handling:
    """The handlers of one plugin at work. `request` sends a handler's request and waits."""

    plugin: Plugin
    request: Callable[..., Awaitable[bytes]]
    log: Logger
    running: dict[Call, Turn] = attrs.field(factory=dict, init=False)
    """The requests whose handlers run."""
    _deferred: dict[Call, tuple[PluginSide, Callable[[], None]]] = attrs.field(
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
        failure, rest = _split(exc)
        if failure is not None:
            self._log_failure(turn, item.method, item.params, failure)
            if self.plugin.on_error == "pass" and not turn.forwarded:
                turn.side.pass_on(item)
        if rest is not None:
            raise rest from None

    async def run_request(self, turn: Turn, item: Request) -> None:
        """Run the handler of a request, and answer it."""
        call, side = item.call, turn.side
        if call.cancelled:
            side.neighbour.respond(call, None, CANCELLED)
            return
        turn.answering = answering = Answering(call)
        self.running[call] = turn
        reply: _Reply | None = None
        try:
            with answering.scope as scope:
                reply = await self._reply(turn, answering, item)
            if scope.cancelled_caught:
                reply = (None, CANCELLED)
        except BaseException as exc:
            failure, rest = _split(exc)
            if failure is not None:
                reply = self._failed(turn, answering, item, failure)
            if rest is not None:
                reply = (None, CLOSING)
                raise rest from None
        finally:
            del self.running[call]
            if reply is not None:
                side.neighbour.respond(call, *reply)
                self._see_end(item, reply)

    async def observe(self, turn: Turn, message: RawMessage) -> None:
        """Show a message to the observer; whatever that does, the message goes on."""
        try:
            turn.coroutine = turn.handler.function(self.plugin, message)
            await turn.coroutine
        except BaseException as exc:
            failure, rest = _split(exc)
            if failure is not None:
                self._log_failure(turn, message.method, message.payload, failure)
            if rest is not None:
                raise rest from None

    def cancel(self, call: Call) -> None:
        """Lane rule 6, for a request whose handler has begun."""
        if call in self._deferred:
            self._deferred[call][1]()
            return
        turn = self.running.get(call)
        if turn is None or turn.answering is None:
            return
        if turn.waiting:
            for waited_for in turn.waiting:
                waited_for.cancel()
        else:
            turn.answering.scope.cancel()

    def defer(self, cancelled: Callable[[], None]) -> Answered:
        """See `Plugin.defer`."""
        turn = current_turn.get()
        if turn is None or turn.done or turn.answering is None or turn.answering.deferred:
            raise LocalProtocolError("defer() is for the handler of a request, once")
        call, side = turn.answering.call, turn.side
        turn.answering.deferred = True
        self._deferred[call] = (side, cancelled)

        def answer(result: bytes | None, error: bytes | None) -> None:
            if self._deferred.pop(call, None) is not None:
                side.neighbour.respond(call, result, error)

        return answer

    def close(self) -> None:
        """Answer what somebody was to answer later."""
        for call, (side, _) in list(self._deferred.items()):
            side.neighbour.respond(call, None, CLOSING)
        self._deferred.clear()

    # ----------------------------------------------------------------------------------------------

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
        if answering.deferred and self._deferred.pop(item.call, None) is None:
            return None  # answered already
        refusal = _request_error_in(exc)
        if refusal is not None:
            return None, error_of(refusal)
        self._log_failure(turn, item.method, item.params, exc)
        if self.plugin.on_error == "pass":
            if answering.answer is not None:
                return answering.answer.result, answering.answer.error
            if not turn.forwarded:
                turn.side.pass_on(item)
                return None
        data = {"plugin": type(self.plugin).__name__, "reason": f"{type(exc).__name__}: {exc}"}
        return None, encode_error(INTERNAL_ERROR, "Internal error", data)

    def _see_end(self, item: Request, reply: _Reply) -> None:
        """A session that was ended is forgotten (`per_session`)."""
        if item.method in ENDS and reply[0] is not None:
            session = session_of(item.params)
            if session is not None:
                forget(self.plugin, session)

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


def _split(exc: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """What is the handler's failure, and what is somebody else's business.

    `sys.exit()` in a handler is a failure like any other; a cancellation from outside is not.
    """
    failures = (Exception, SystemExit)
    if isinstance(exc, BaseExceptionGroup):
        return exc.split(failures)
    return (exc, None) if isinstance(exc, failures) else (None, exc)


def _request_error_in(exc: BaseException) -> RequestError | None:
    """The answer that an exception stands for: trio wraps what a nursery's tasks raise."""
    if isinstance(exc, RequestError):
        return exc
    if isinstance(exc, BaseExceptionGroup):
        found = [_request_error_in(each) for each in exc.exceptions]
        if None not in found:
            return found[0]
    return None
