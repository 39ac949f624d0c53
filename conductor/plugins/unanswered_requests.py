"""Requests that outlive their handlers: deferred ones, and those of a plugin that has ended.

`Plugin.defer` lets the handler of a request end before it is answered. Each such request is
answered once: by the plugin, or in its place when its turn is ended by force, when its handler
fails after all, or when the plugin ends. Then it is aborted, like all others that the plugin will
not answer any more: they get their errors once it is known why it has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import msgspec

from conductor.acp import session_id_of
from conductor.errors import LocalProtocolError
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.plugins.failure_log import FailureLog
from conductor.plugins.handler_call import current_handler_call
from conductor.plugins.lane import LaneRequest
from conductor.plugins.plugin_errors import call_plugin
from conductor.plugins.plugin_port import PluginPort
from conductor.proxy.conversion import encode
from conductor.proxy.peers import DeferredAnswer
from conductor.routing.failure_errors import CHAIN_ENDED, FailureErrors, answer_of_gone

__all__ = ["AbortedRequests", "DeferredRequests"]


@attrs.define(eq=False, repr=False)
class DeferredRequests:
    """The deferred requests of one plugin that are not answered yet."""

    failures: FailureLog
    _requests: dict[InFlightRequest, tuple[PluginPort, LaneRequest, Callable[[], None]]] = (
        attrs.field(factory=dict, init=False)
    )
    """With the callback for their cancellation."""

    def defer(self, on_cancelled: Callable[[], None]) -> DeferredAnswer:
        """See `Plugin.defer`."""
        handler_call = current_handler_call.get()
        if (
            handler_call is None
            or handler_call.done
            or handler_call.response_state is None
            or handler_call.response_state.deferred
        ):
            raise LocalProtocolError("defer() is for the handler of a request, once")
        call, port = handler_call.response_state.call, handler_call.port
        handler_call.response_state.deferred = True
        assert type(handler_call.item) is LaneRequest
        self._requests[call] = (port, handler_call.item, on_cancelled)

        def answer(result: Any, error: Any) -> None:
            raw_result, raw_error = encode(result), encode(error)
            if self.take(call):
                port.neighbour.respond(call, raw_result, raw_error)

        return answer

    def items(self) -> list[LaneRequest]:
        return [item for _, item, _ in self._requests.values()]

    def take(self, call: InFlightRequest) -> bool:
        """Remove a request that is about to be answered; False if it was answered already."""
        return self._requests.pop(call, None) is not None

    def cancel(self, call: InFlightRequest) -> bool:
        """Call the cancellation callback of a request; False if it is not deferred."""
        if call not in self._requests:
            return False
        call_plugin(partial(self._cancel_failed, call), self._requests[call][2])
        return True

    def answer(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> bool:
        """Answer a request in the plugin's place, and call its cancellation callback; False if it
        is not deferred."""
        if call not in self._requests:
            return False
        port, _, on_cancelled = self._requests.pop(call)
        call_plugin(partial(self._cancel_failed, call), on_cancelled)
        port.neighbour.respond(call, result, error)
        return True

    def close(self, abort: Callable[[PluginPort, LaneRequest, bool], None]) -> None:
        """Give all requests to `abort`, as ones that the agent may have got."""
        for port, item, _ in self._requests.values():
            abort(port, item, True)
        self._requests.clear()

    def _cancel_failed(self, call: InFlightRequest, exc: BaseException) -> None:
        self.failures.report("callback of defer() failed", exc, method=call.method)


@attrs.define(eq=False, repr=False)
class AbortedRequests:
    """The aborted requests of one plugin."""

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
