"""Messages that a plugin sends itself, and the responses that it waits for.

A handler that waits for a response releases its lane; `deliver` says which handler gets the lane of
the response (lane rules 2 and 3). Other tasks of the plugin hold no lane.

Updates of a new session, from the agent or from the plugin, are withheld by the agent port until
the client has the response that opens the session; the scheduler releases them after the handler.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal
from weakref import WeakKeyDictionary

import attrs
import trio

from conductor.acp import SESSION_CREATING_METHODS, session_id_of
from conductor.errors import ConnectionClosed, LocalProtocolError, RequestCancelled
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.notification_batch import SESSION_UPDATE
from conductor.plugins.failures import FailureLog, call_plugin
from conductor.plugins.handler_call import (
    HandlerCall,
    HandlerResponse,
    ResponseState,
    current_handler_call,
    current_task,
)
from conductor.plugins.lane import Lane, LaneItem, LaneNotification, LaneRequest, LaneResponse
from conductor.plugins.plugin_port import PluginPort
from conductor.proxy.annotations import RawMessage
from conductor.proxy.peers import ResponseCallback

__all__ = ["ObserverIds", "OutgoingMessages"]


@attrs.define(eq=False, repr=False)
class OutgoingMessages:
    """Requests and notifications of one plugin, while its scheduler serves (`is_open`)."""

    client_port: PluginPort
    observer_ids: ObserverIds
    release: Callable[[HandlerCall], None]
    """Releases the lane that a handler holds."""
    failures: FailureLog
    response_callbacks: dict[InFlightRequest, ResponseCallback] = attrs.field(
        factory=dict, init=False
    )
    """Callbacks for the responses to requests sent with `ask`."""
    _awaited: dict[InFlightRequest, HandlerResponse] = attrs.field(factory=dict, init=False)
    is_open: bool = attrs.field(default=False, init=False)
    _closed: bool = attrs.field(default=False, init=False)

    def close(self) -> None:
        """Refuse requests from now on."""
        self.is_open, self._closed = False, True

    async def request(
        self, port: PluginPort, method: str, params: bytes | None, *, forwards: bool = False
    ) -> bytes:
        """Send a request through a port and wait for its raw result (lane rules 2 and 3)."""
        handler_call = self._may_wait(method)
        if (
            forwards
            and handler_call is not None
            and handler_call.response_state is not None
            and handler_call.response_state.answered
            and handler_call.response_state.scope.cancel_called
        ):
            raise RequestCancelled  # its request was answered in its place
        call = InFlightRequest(method, port)
        response = self._awaited[call] = HandlerResponse(
            handler_call=handler_call, forwards=forwards
        )
        if handler_call is not None:
            handler_call.awaited |= {call}
            observed = handler_call.port.observer is not None
            if forwards and observed and type(handler_call.item) is LaneRequest:
                self.observer_ids.forwarded(handler_call.item.call, call)
        port.neighbour.request(call, method, params)
        timed = None
        if handler_call is not None:
            if (state := handler_call.response_state) is not None:
                timed = None if state.time_limit is None else state
                if state.call.cancelled:
                    call.cancel()
            self.release(handler_call)
        if timed is not None:
            timed.scope.deadline = float("inf")
        try:
            result = await response.wait()
            if (asker := handler_call or current_task.get()) is not None:
                asker.answer = call, result
            return result
        except trio.Cancelled:
            call.cancel()
            raise
        finally:
            self._awaited.pop(call, None)
            if handler_call is not None:
                handler_call.awaited -= {call}
                handler_call.resumes = False
            if timed is not None:
                timed.start_clock()

    def notify(self, port: PluginPort, method: str, params: bytes | None) -> None:
        """Send a notification from the plugin through a port."""
        to_client = port is self.client_port and method == SESSION_UPDATE
        if to_client and params is not None and self._withholds_own(params):
            return
        port.neighbour.notify(method, params)

    def ask(
        self, port: PluginPort, method: str, params: bytes | None, answered: ResponseCallback
    ) -> Callable[[], None]:
        """Send a request and do not wait: `answered` is called with the response, in its lane.

        Returns a function that cancels the request.
        """
        call = InFlightRequest(method, port)
        self.response_callbacks[call] = answered
        port.neighbour.request(call, method, params)
        return call.cancel

    def deliver(self, lane: Lane, port: PluginPort, item: LaneResponse) -> HandlerCall | None:
        """Give a response to the handler that waits for it, or forward it.

        Returns the handler if it holds the lane now.
        """
        if item.call.source is not port:
            port.forward_unchanged(item)
            return None
        answered = self.response_callbacks.pop(item.call, None)
        if answered is not None:
            failed = partial(self._callback_failed, item.call.method)
            call_plugin(failed, answered, item.result, item.error)
            return None
        awaited = self._awaited.get(item.call)
        if awaited is None or awaited.arrived.is_set():
            return None  # the handler no longer waits
        awaited.set(item.result, item.error)
        handler_call = awaited.handler_call
        if handler_call is None or handler_call.done:
            return None
        if item.mark is not None:
            handler_call.mark = item.mark
        handler_call.awaited -= {item.call}
        handler_call.resumes = True
        if awaited.forwards and handler_call.response_state is not None:
            handler_call.response_state.answer = item
            if item.call.method in SESSION_CREATING_METHODS:
                self._withhold(handler_call.response_state, session_id_of(item.result))
        if handler_call.awaited or handler_call.lane is not None:
            return None
        handler_call.lane = lane
        return handler_call

    def _may_wait(self, method: str) -> HandlerCall | None:
        """The handler that this task belongs to, if it may wait for a response.

        Raises `ConnectionClosed` after the end, and `LocalProtocolError` if waiting is a mistake of
        the plugin.
        """
        if not self.is_open:
            if self._closed:
                raise ConnectionClosed(f"{method}: the chain is ending")
            raise LocalProtocolError(
                f"{type(self.failures.plugin).__name__}: {method} cannot be sent before lifespan() "
                f"has yielded, since nothing is handled yet; send it with start_soon()"
            )
        handler_call = current_handler_call.get()
        if handler_call is None or handler_call.done:
            return None
        if handler_call.is_observer_call:
            raise LocalProtocolError(
                f"{handler_call.handler.location}: an observer holds its lane and may not wait for "
                f"a response; send {method} with start_soon()"
            )
        return handler_call

    def _withholds_own(self, params: bytes) -> bool:
        """Withhold an update from the plugin for a session that the client does not know yet.

        If the handler creates the session itself, every session that it writes to may be the new
        one.
        """
        handler_call = current_handler_call.get()
        response_state = (
            None if handler_call is None or handler_call.done else handler_call.response_state
        )
        creates_session = (
            response_state is not None and response_state.call.method in SESSION_CREATING_METHODS
        )
        if not creates_session and not self.client_port.other.withholds_updates:
            return False
        session = session_id_of(params)
        if session is None:
            return False
        if creates_session and response_state is not None:
            self._withhold(response_state, session)
        return self.client_port.other.withhold_own_update(session, params)

    def _withhold(self, response_state: ResponseState, session: str | None) -> None:
        if session is not None and session not in response_state.created_sessions:
            response_state.created_sessions += (session,)
            self.client_port.other.withhold_updates(session)

    def _callback_failed(self, method: str, exc: BaseException) -> None:
        self.failures.report("response callback failed", exc, method=method)


@attrs.define(eq=False, repr=False)
class ObserverIds:
    """Gives a request and its response the same number.

    A number lasts as long as its call: a request that a handler answers itself, or that is
    cancelled while it waits, has no response that would remove it.
    """

    _numbers: WeakKeyDictionary[InFlightRequest, int] = attrs.field(
        factory=WeakKeyDictionary, init=False
    )
    _last: int = attrs.field(default=0, init=False)

    def forwarded(self, request: InFlightRequest, call: InFlightRequest) -> None:
        """Record that a handler forwarded `request` as `call`: they share a number."""
        number = self._numbers.get(request)
        if number is not None:
            self._numbers[call] = number

    def observed_message(
        self, source: Literal["client", "agent"], item: LaneItem
    ) -> RawMessage | None:
        """The message for the observer; None if the observer has seen it before."""
        match item:
            case LaneRequest(call, method, params):
                number = self._numbers[call] = self._next()
                return RawMessage("request", method, source, params, number=number)
            case LaneNotification(method, params, already_observed):
                return (
                    None if already_observed else RawMessage("notification", method, source, params)
                )
            case LaneResponse(call, result, error):
                number = self._numbers.pop(call, 0) or self._next()  # 0: a request of its own
                payload, failed = (result, False) if error is None else (error, True)
                return RawMessage("response", call.method, source, payload, failed, number)

    def _next(self) -> int:
        self._last += 1
        return self._last
