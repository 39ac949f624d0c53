"""Functions that get the response to a request of the client or of the conductor. Pure."""

from __future__ import annotations

from collections.abc import Callable

from conductor.jsonrpc.in_flight import InFlightRequest, RequestOriginator
from conductor.jsonrpc.messages import Payload

__all__ = ["OwnRequest", "ResponseWatch"]


class OwnRequest:
    """Originator of a request that the conductor itself sends to a further chain."""

    __slots__ = ("_answered",)

    def __init__(self, answered: Callable[[Payload | None, Payload | None], None]) -> None:
        self._answered = answered

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        self._answered(result, error)


class ResponseWatch:
    """Calls a function with the response to a request of the client.

    `before` is called before the client gets the response, `after` afterwards.
    """

    __slots__ = ("_after", "_before", "_source")

    def __init__(
        self,
        call: InFlightRequest,
        before: Callable[[Payload | None, Payload | None], None] | None = None,
        after: Callable[[Payload | None, Payload | None], None] | None = None,
    ) -> None:
        self._source: RequestOriginator = call.source
        self._before, self._after = before, after
        call.source = self

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        call.source = self._source
        if self._before is not None:
            self._before(result, error)
        self._source.respond(call, result, error)
        if self._after is not None:
            self._after(result, error)
