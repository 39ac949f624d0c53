"""Requests that the conductor itself sends to a component behind a link."""

from __future__ import annotations

import attrs
import trio

from conductor.errors import ConnectionClosed
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload, error_to_exception, request_pieces
from conductor.routing.link import Link
from conductor.routing.port import Port

__all__ = ["OwnRequests"]


class OwnRequests(Port):
    """Sends requests and waits for their responses; neither passes the rest of the chain."""

    __slots__ = ("_link", "_pending")

    def __init__(self, link: Link) -> None:
        self.neighbour = self
        self._link = link
        self._pending: dict[InFlightRequest, _PendingResponse] = {}

    def expect_response(self, method: str) -> InFlightRequest:
        """An in-flight request with this as originator; the caller sends it."""
        call = InFlightRequest(method, self, target=self)
        self._pending[call] = _PendingResponse()
        return call

    async def answer(self, call: InFlightRequest) -> bytes:
        """Wait for the response; returns the raw result. Raises `RequestError` for an error."""
        answer = self._pending[call]
        try:
            await answer.arrived.wait()
        finally:
            del self._pending[call]
        if answer.error is not None:
            raise error_to_exception(answer.error)
        return answer.result

    async def send_request(self, method: str, params: bytes) -> bytes:
        """Send a request, ahead of queued messages, and wait for its raw result.

        Raises `RequestError`, and `ConnectionClosed` if the component is not running.
        """
        connection = self._link.connection
        if connection is None:
            raise ConnectionClosed(f"{self._link.name} is not running")
        call = self.expect_response(method)
        connection.write(request_pieces(connection.open(call), method, params))
        return await self.answer(call)

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        answer = self._pending.get(call)
        if answer is None:
            return
        answer.result = b"" if result is None else bytes(result)
        answer.error = None if error is None else bytes(error)
        answer.arrived.set()

    def cancel(self, call: InFlightRequest) -> None:
        self._link.plain.cancel(call)


@attrs.define(eq=False, repr=False)
class _PendingResponse:
    result: bytes = b""
    error: bytes | None = None
    arrived: trio.Event = attrs.field(factory=trio.Event)
