"""Requests of the conductor's own to a component behind a wire."""

from __future__ import annotations

import attrs
import trio

from conductor.connection.calls import Call
from conductor.errors import ConnectionClosed
from conductor.messages import Payload, request_error, request_pieces
from conductor.routing.sides import Side
from conductor.routing.wire import Wire

__all__ = ["Asking"]


class Asking(Side):
    """Asks, and waits for the answer; nobody else in the chain sees either."""

    __slots__ = ("_answers", "_wire")

    def __init__(self, wire: Wire) -> None:
        self.neighbour = self
        self._wire = wire
        self._answers: dict[Call, _Answer] = {}

    def expect(self, method: str) -> Call:
        """A call whose answer comes here, for whoever asks in our name."""
        call = Call(method, self, target=self)
        self._answers[call] = _Answer()
        return call

    async def answer(self, call: Call) -> bytes:
        """The result. Raises `RequestError` for an error."""
        answer = self._answers[call]
        try:
            await answer.arrived.wait()
        finally:
            del self._answers[call]
        if answer.error is not None:
            raise request_error(answer.error)
        return answer.result

    async def ask(self, method: str, params: bytes) -> bytes:
        """Send a request, past whatever is held back, and wait for its result.

        Raises `RequestError`, and `ConnectionClosed` if nobody is there to ask.
        """
        connection = self._wire.connection
        if connection is None:
            raise ConnectionClosed(f"{self._wire.name} is not running")
        call = self.expect(method)
        connection.write(request_pieces(connection.open(call), method, params))
        return await self.answer(call)

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        answer = self._answers.get(call)
        if answer is None:
            return
        answer.result = b"" if result is None else bytes(result)
        answer.error = None if error is None else bytes(error)
        answer.arrived.set()

    def cancel(self, call: Call) -> None:
        self._wire.plain.cancel(call)


@attrs.define(eq=False, repr=False)
class _Answer:
    result: bytes = b""
    error: bytes | None = None
    arrived: trio.Event = attrs.field(factory=trio.Event)
