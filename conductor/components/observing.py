"""What observers are shown of a message that waits in a lane. Pure."""

from __future__ import annotations

from typing import Literal

import attrs

from conductor.connection.calls import Call
from conductor.connection.lanes import Answer, Item, Notification, Request
from conductor.proxy.raw import RawMessage

__all__ = ["Numbering"]


@attrs.define(eq=False, repr=False)
class Numbering:
    """Gives requests and their responses the same number."""

    _numbers: dict[Call, int] = attrs.field(factory=dict, init=False)
    _last: int = attrs.field(default=0, init=False)

    def shown(self, source: Literal["client", "agent"], item: Item) -> RawMessage | None:
        """The message as its observer sees it; `None` if that has seen it before."""
        match item:
            case Request(call, method, params):
                self._last += 1
                self._numbers[call] = self._last
                return RawMessage("request", method, source, params, number=self._last)
            case Notification(method, params, again):
                return None if again else RawMessage("notification", method, source, params)
            case Answer(call, result, error):
                number = self._numbers.pop(call, 0)
                payload, failed = (result, False) if error is None else (error, True)
                return RawMessage("response", call.method, source, payload, failed, number)
