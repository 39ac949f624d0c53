"""What observers are shown of a message that waits in a lane. Pure."""

from __future__ import annotations

from typing import Literal
from weakref import WeakKeyDictionary

import attrs

from conductor.connection.calls import Call
from conductor.connection.lanes import Answer, Item, Notification, Request
from conductor.proxy.raw import RawMessage

__all__ = ["Numbering"]


@attrs.define(eq=False, repr=False)
class Numbering:
    """Gives requests and their responses the same number.

    A number lasts as long as its call: a request that a handler answers itself, or that is
    cancelled while it waits, has no response that would remove it.
    """

    _numbers: WeakKeyDictionary[Call, int] = attrs.field(factory=WeakKeyDictionary, init=False)
    _last: int = attrs.field(default=0, init=False)

    def forwarded(self, request: Call, call: Call) -> None:
        """A handler has sent `request` on as `call`, whose response is the request's."""
        number = self._numbers.get(request)
        if number is not None:
            self._numbers[call] = number

    def shown(self, source: Literal["client", "agent"], item: Item) -> RawMessage | None:
        """The message as its observer sees it; `None` if that has seen it before."""
        match item:
            case Request(call, method, params):
                number = self._numbers[call] = self._next()
                return RawMessage("request", method, source, params, number=number)
            case Notification(method, params, again):
                return None if again else RawMessage("notification", method, source, params)
            case Answer(call, result, error):
                number = self._numbers.pop(call, 0) or self._next()  # 0: a request of its own
                payload, failed = (result, False) if error is None else (error, True)
                return RawMessage("response", call.method, source, payload, failed, number)

    def _next(self) -> int:
        self._last += 1
        return self._last
