"""Requests that the conductor itself sends to a component behind a link."""

from __future__ import annotations

from collections.abc import Callable

from conductor.errors import ConnectionClosed
from conductor.jsonrpc.awaited_response import AwaitedResponse
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.routing.link import Link
from conductor.routing.stage import EVERY, ForwardResponse, Stage
from conductor.routing.traced_port import TracedOwnRequests

__all__ = ["OwnRequests"]


class OwnRequests(Stage):
    """Sends requests and waits for their responses, as long as it is inserted; neither passes the
    rest of the chain. `traced` shows them, in a traced chain."""

    __slots__ = ("_link", "_pending", "_traced", "on_answer")

    name = "own requests"
    sent: frozenset[str] = EVERY

    def __init__(self, link: Link, traced: TracedOwnRequests | None) -> None:
        self._link = link
        self._traced = traced
        self._pending: dict[InFlightRequest, AwaitedResponse] = {}
        self.on_answer: Callable[[], None] | None = None
        """Called with the next answer, before any later message."""

    def expect_response(self, method: str, params: bytes) -> InFlightRequest:
        """An in-flight request with this as originator; the caller sends it now."""
        call = InFlightRequest(method, self, target=self._link.plain)
        self._pending[call] = AwaitedResponse()
        if self._traced is not None:
            self._traced.sent(call, method, params)
        return call

    async def answer(self, call: InFlightRequest) -> bytes:
        """Wait for the response; returns the raw result. Raises `RequestError` for an error."""
        try:
            return await self._pending[call].wait()
        finally:
            del self._pending[call]

    async def send_request_and_wait(self, method: str, params: bytes) -> bytes:
        """Send a request, ahead of queued messages, and wait for its raw result.

        Raises `RequestError`, and `ConnectionClosed` if the component is not running.
        """
        if self._link.connection is None:
            raise ConnectionClosed(f"{self._link.name} is not running")
        call = self.expect_response(method, params)
        self.port.send(self, call, method, params)
        return await self.answer(call)

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        """As originator: take the response."""
        pending = self._pending.get(call)
        if pending is not None:
            if self._traced is not None:
                self._traced.answered(call, result, error)
            on_answer, self.on_answer = self.on_answer, None
            if on_answer is not None:
                on_answer()
            pending.set(result, error)

    def receive_response(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        if call.source is self:
            self.respond(call, result, error)
        else:
            forward(call, result, error)
