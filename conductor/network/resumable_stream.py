"""Line stream over successive WebSockets between two conductors: a cut connection is resumed.

Neither end of the stream sees a cut: its lines wait (up to `WINDOW` bytes, then back-pressure)
for the next socket. A text is one or more lines; an empty text is EOF of its direction.

    client                                                        server
    GET Upgrade, Acp-Conductor-Resume: 1                     ->
                                  <-  101, Acp-Conductor-Resume: 60, Acp-Connection-Id: x
    … cut …
    GET Upgrade, Acp-Connection-Id: x, Acp-Conductor-Received: 17 ->
                                  <-  101, Acp-Conductor-Received: 23

`Acp-Conductor-Resume` of the response is the number of seconds that the server keeps a cut
connection. `Acp-Conductor-Received` is the number of the newest text received by the sender of the
header.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import attrs
import trio
from trio.lowlevel import ParkingLot

from conductor.errors import ConnectionClosed
from conductor.network.sequence_numbers import (
    AckFrame,
    ReceiveWindow,
    SendWindow,
    SequenceError,
    parse_frame,
)
from conductor.network.websocket import WebSocket, WebSocketClosed
from conductor.transport.base import CHUNK_SIZE
from conductor.transport.memory import LineChannel

__all__ = [
    "FRAME_OVERHEAD",
    "RECEIVED_HEADER",
    "RESUME_HEADER",
    "SEQUENCE_HEADER",
    "ResumableStream",
]

RESUME_HEADER: Final = "acp-conductor-resume"
"""Header by which two conductors recognize each other."""
RECEIVED_HEADER: Final = "acp-conductor-received"
"""Header with the number of the newest text received."""
SEQUENCE_HEADER: Final = "acp-conductor-sequence"
"""Header that numbers POSTs over HTTP, so that a repeated one is processed once."""

FRAME_OVERHEAD: Final = CHUNK_SIZE + 32
"""Maximum size of a text beyond one message of maximum size: its number and other messages."""
_SEQUENCE_ERROR_CODE: Final = 4400
"""Close code: the connection cannot be resumed."""


@attrs.define(eq=False)
class ResumableStream:
    """One end of the line stream: numbered texts, kept until the peer has acknowledged them.

    Call `run` once, and `carry` for every socket, one at a time.
    """

    _lines: LineChannel
    _on_activity: Callable[[], None] = lambda: None
    """Called for every frame in either direction."""
    peer_ended: bool = attrs.field(default=False, init=False)
    """Whether the EOF of the peer has been received."""
    _ended: bool = attrs.field(default=False, init=False)
    """The EOF of this end has been numbered."""
    _outgoing: SendWindow = attrs.field(factory=SendWindow, init=False)
    _incoming: ReceiveWindow = attrs.field(factory=ReceiveWindow, init=False)
    _room: ParkingLot = attrs.field(factory=ParkingLot, init=False)
    _arrived: ParkingLot = attrs.field(factory=ParkingLot, init=False)
    _to_send: ParkingLot = attrs.field(factory=ParkingLot, init=False)

    @property
    def received(self) -> int:
        """Number of the newest text received."""
        return self._incoming.taken

    @property
    def is_drained(self) -> bool:
        """Whether the outgoing direction is at EOF and fully acknowledged."""
        return self._ended and self._outgoing.acknowledged == self._outgoing.last

    async def run(self) -> None:
        """Number outgoing lines and deliver incoming ones, until both directions are at EOF."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._number)
            nursery.start_soon(self._pass_on)

    async def carry(self, socket: WebSocket, received: int) -> None:
        """Run over one socket until it is closed or lost, or both directions are at EOF.

        `received`: number of the newest text that the peer has. Raises `SequenceError`.
        """
        problem: SequenceError | None = None
        async with trio.open_nursery() as nursery:
            try:
                self._acknowledged(received)
                nursery.start_soon(self._send, socket, received, nursery.cancel_scope)
                await self._receive(socket)
            except SequenceError as exc:
                problem = exc
            nursery.cancel_scope.cancel()
        if problem is not None:
            await socket.close(_SEQUENCE_ERROR_CODE, str(problem)[:100])
            raise problem

    async def wait_drained(self) -> None:
        """Return when the peer has acknowledged everything, EOF included."""
        while not self.is_drained:
            await self._room.park()

    # -- for the lifetime of the stream ------------------------------------------------------------

    async def _number(self) -> None:
        while lines := await self._lines.receive():
            while self._outgoing.full:
                await self._room.park()
            self._on_activity()
            if text := b"\n".join(filter(None, lines)):
                self._outgoing.put(text)
                self._to_send.unpark_all()
        self._outgoing.put(b"")
        self._ended = True
        self._to_send.unpark_all()

    async def _pass_on(self) -> None:
        while text := await self._take():
            with suppress(ConnectionClosed):  # the local reader has gone
                await self._lines.send(filter(None, text.split(b"\n")))
        self._lines.close_sending()
        self.peer_ended = True
        self._to_send.unpark_all()

    async def _take(self) -> bytes:
        while (text := self._incoming.take(trio.current_time())) is None:
            await self._arrived.park()
        self._to_send.unpark_all()  # an acknowledgement is due now or later
        return text

    # -- for the lifetime of a socket --------------------------------------------------------------

    async def _send(self, socket: WebSocket, sent: int, scope: trio.CancelScope) -> None:
        try:
            while True:
                due = self._incoming.acknowledgement(trio.current_time())
                if due is not None:
                    await socket.send(due.encode())
                elif sent < self._outgoing.last:
                    sent += 1
                    await socket.send(self._outgoing.get(sent).encode())
                elif self.peer_ended and self.is_drained:
                    await socket.close()
                    break
                else:
                    with trio.move_on_at(self._incoming.ack_at):
                        await self._to_send.park()
        except WebSocketClosed:
            pass
        scope.cancel()

    async def _receive(self, socket: WebSocket) -> None:
        while (frame := await socket.receive()) is not None:
            self._on_activity()
            match parse_frame(frame):
                case AckFrame(number):
                    self._acknowledged(number)
                case numbered:
                    self._incoming.put(numbered)
                    self._arrived.unpark_all()

    def _acknowledged(self, number: int) -> None:
        self._outgoing.acknowledge(number)
        self._room.unpark_all()
        if self.is_drained:
            self._to_send.unpark_all()
