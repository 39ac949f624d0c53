"""Requests that the conductor itself sends to a component behind a link."""

from __future__ import annotations

from conductor.errors import ConnectionClosed
from conductor.jsonrpc.awaited_response import AwaitedResponse
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload, request_pieces
from conductor.routing.link import Link
from conductor.routing.port import Port

__all__ = ["OwnRequests"]


class OwnRequests(Port):
    """Sends requests and waits for their responses; neither passes the rest of the chain."""

    __slots__ = ("_link", "_pending")

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._pending: dict[InFlightRequest, AwaitedResponse] = {}

    def expect_response(self, method: str, params: bytes) -> InFlightRequest:
        """An in-flight request with this as originator; the caller sends it now."""
        call = InFlightRequest(method, self, target=self)
        self._pending[call] = AwaitedResponse()
        if self._link.traced_own_requests is not None:
            self._link.traced_own_requests.sent(call, method, params)
        return call

    async def answer(self, call: InFlightRequest) -> bytes:
        """Wait for the response; returns the raw result. Raises `RequestError` for an error."""
        try:
            return await self._pending[call].wait()
        finally:
            del self._pending[call]

    async def send_request(self, method: str, params: bytes) -> bytes:
        """Send a request, ahead of queued messages, and wait for its raw result.

        Raises `RequestError`, and `ConnectionClosed` if the component is not running.
        """
        connection = self._link.connection
        if connection is None:
            raise ConnectionClosed(f"{self._link.name} is not running")
        call = self.expect_response(method, params)
        names = self._link.session_names
        renamed = params if names is None else names.to_agent(params)
        connection.write(request_pieces(connection.open(call), method, renamed))
        return await self.answer(call)

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        pending = self._pending.get(call)
        if pending is not None:
            if self._link.traced_own_requests is not None:
                self._link.traced_own_requests.answered(call, result, error)
            self._link.suppressed_session = None  # the history that is dropped ends here
            pending.set(result, error)

    def receive_response(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        self.respond(call, result, error)

    def cancel(self, call: InFlightRequest) -> None:
        self._link.plain.cancel(call)
