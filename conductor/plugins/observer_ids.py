"""Messages for observers: a `RawMessage` for each lane item, with request numbers. Pure."""

from __future__ import annotations

from typing import Literal
from weakref import WeakKeyDictionary

import attrs

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.plugins.lane import LaneItem, LaneNotification, LaneRequest, LaneResponse
from conductor.proxy.annotations import RawMessage

__all__ = ["ObserverIds"]


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
