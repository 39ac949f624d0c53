"""Carries the lines of a memory pair over one WebSocket after the other, between two ends of ours.

Whoever speaks at either end never sees that a socket was cut: its lines wait (within `WINDOW`)
until the next socket takes them. A text is one line or several; an empty one is the end of that
direction.

    client                                                        server
    GET Upgrade, Acp-Conductor-Resume: 1                     ->
                                  <-  101, Acp-Conductor-Resume: 60, Acp-Connection-Id: x
    … cut …
    GET Upgrade, Acp-Connection-Id: x, Acp-Conductor-Received: 17 ->
                                  <-  101, Acp-Conductor-Received: 23

The server tells for how many seconds it keeps what belongs to a connection that is cut. Both tell
the number of the newest text that they have received.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import attrs
import trio
from trio.lowlevel import ParkingLot

from conductor.errors import ConnectionClosed
from conductor.network.line_channel import LineChannel
from conductor.network.sequence_numbers import (
    AckFrame,
    ReceiveWindow,
    SendWindow,
    SequenceError,
    parse_frame,
)
from conductor.network.websocket import WebSocket, WebSocketClosed
from conductor.transport.base import CHUNK_SIZE

__all__ = [
    "FRAME_OVERHEAD",
    "RECEIVED_HEADER",
    "RESUME_HEADER",
    "SEQUENCE_HEADER",
    "ResumableStream",
]

RESUME_HEADER: Final = "acp-conductor-resume"
"""The header by which two ends of ours know each other."""
RECEIVED_HEADER: Final = "acp-conductor-received"
"""The header that says where to go on."""
SEQUENCE_HEADER: Final = "acp-conductor-sequence"
"""Over HTTP, the header by which a POST that comes twice is taken once."""

FRAME_OVERHEAD: Final = CHUNK_SIZE + 32
"""Bytes that a text may have besides a message: its number, and messages with it."""
_SEQUENCE_ERROR_CODE: Final = 4400
"""The code of a close frame that says that nothing can be resumed."""


@attrs.define(eq=False)
class ResumableStream:
    """`run` once, and `carry` for every socket, one at a time."""

    _lines: LineChannel
    _on_activity: Callable[[], None] = lambda: None
    """Called when something was said, by either side."""
    peer_ended: bool = attrs.field(default=False, init=False)
    """Whether everything that the peer will ever say has arrived."""
    _ended: bool = attrs.field(default=False, init=False)
    """Our last text is the end."""
    _outgoing: SendWindow = attrs.field(factory=SendWindow, init=False)
    _incoming: ReceiveWindow = attrs.field(factory=ReceiveWindow, init=False)
    _room: ParkingLot = attrs.field(factory=ParkingLot, init=False)
    _arrived: ParkingLot = attrs.field(factory=ParkingLot, init=False)
    _to_send: ParkingLot = attrs.field(factory=ParkingLot, init=False)

    @property
    def received(self) -> int:
        """The number of the newest text that was received, for the peer."""
        return self._incoming.taken

    @property
    def is_drained(self) -> bool:
        """Whether our direction has ended, and the peer has everything."""
        return self._ended and self._outgoing.acknowledged == self._outgoing.last

    async def run(self) -> None:
        """Number what is to be sent, and pass on what was received, until both have ended."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._number)
            nursery.start_soon(self._pass_on)

    async def carry(self, socket: WebSocket, received: int) -> None:
        """Until the socket is closed or lost, or both directions have ended.

        `received` is what the peer said that it has. Raises `SequenceError`.
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
        """Return when the peer has everything, the end included."""
        while not self.is_drained:
            await self._room.park()

    # -- as long as the connection lives -----------------------------------------------------------

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
            with suppress(ConnectionClosed):  # our end is gone: this is for nobody
                await self._lines.send(filter(None, text.split(b"\n")))
        self._lines.close_sending()
        self.peer_ended = True
        self._to_send.unpark_all()

    async def _take(self) -> bytes:
        while (text := self._incoming.take(trio.current_time())) is None:
            await self._arrived.park()
        self._to_send.unpark_all()  # it is to be acknowledged, sooner or later
        return text

    # -- as long as a socket lives -----------------------------------------------------------------

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
