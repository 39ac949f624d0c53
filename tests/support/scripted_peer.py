"""The other end of a transport, played by a test: JSON that it writes and reads."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

from conductor.errors import ConnectionClosed
from conductor.transport.memory import MemoryTransport
from support.raw_json import dumps

_PATIENCE = 3.0
"""Virtual seconds that a test waits for a message; less than any timeout of the conductor."""


@attrs.define(eq=False)
class Peer:
    """Reads everything as it comes, and writes as fast as the other side takes it.

    When the other side ends its stream, so does this one, unless `stays`.
    """

    transport: MemoryTransport
    name: str = "peer"
    stays: bool = False
    reads: bool = True
    ended: bool = False
    """The other side has ended its stream."""
    lines: deque[bytes] = attrs.field(factory=deque)
    """Lines that came and were not taken yet."""
    _rest: bytes = b""
    _outgoing: bytearray = attrs.field(factory=bytearray)
    _closing: bool = False
    _wrote: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)
    _arrived: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write)
            while chunk := await self._receive():
                *lines, self._rest = (self._rest + chunk).split(b"\n")
                for line in lines:
                    self.take(line)
                self._arrived.unpark_all()
            self.ended = True
            self._arrived.unpark_all()
            if self.stays:
                await trio.sleep_forever()
            self.close()

    async def _receive(self) -> bytes:
        while not self.reads:
            await self._arrived.park()
        return await self.transport.receive()

    def take(self, line: bytes) -> None:
        self.lines.append(line)

    def stop_reading(self) -> None:
        """Read at most one more chunk."""
        self.reads = False

    def start_reading(self) -> None:
        self.reads = True
        self._arrived.unpark_all()

    # -- writing -------------------------------------------------------------------------------

    def send(self, *messages: dict[str, Any]) -> None:
        """Send messages, each on a line of its own; `jsonrpc` is added."""
        for message in messages:
            self.send_line(dumps({"jsonrpc": "2.0", **message}))

    def send_line(self, line: bytes) -> None:
        self.send_bytes(line + b"\n")

    def send_bytes(self, data: bytes) -> None:
        self._outgoing += data
        self._wrote.unpark_all()

    def answer(self, request: dict[str, Any], result: Any = None) -> None:
        self.send({"id": request["id"], "result": {} if result is None else result})

    def refuse(self, request: dict[str, Any], code: int, message: str, data: Any = None) -> None:
        error = {"code": code, "message": message} | ({} if data is None else {"data": data})
        self.send({"id": request["id"], "error": error})

    def close(self) -> None:
        """End the outgoing stream after everything is written."""
        self._closing = True
        self._wrote.unpark_all()

    def unsent(self) -> int:
        return len(self._outgoing)

    async def _write(self) -> None:
        try:
            while True:
                while self._outgoing:
                    taken = self.transport.write_now([bytes(self._outgoing[: 1 << 16])])
                    del self._outgoing[:taken]
                    if not taken:
                        await self.transport.wait_writable()
                if self._closing:
                    self.transport.close_writing()
                    return
                await self._wrote.park()
        except ConnectionClosed:
            self._outgoing.clear()

    # -- reading -------------------------------------------------------------------------------

    async def receive_line(self) -> bytes:
        with trio.move_on_after(_PATIENCE):
            while not self.lines and not self.ended:
                await self._arrived.park()
        assert self.lines, f"{self.name}: nothing came" + (" before the end" if self.ended else "")
        return self.lines.popleft()

    async def receive(self) -> Any:
        """The next message, without `jsonrpc`; a batch as a list."""
        return _message(await self.receive_line())

    async def receive_nothing(self) -> None:
        """Check that no message arrives before all tasks are blocked."""
        await wait_all_tasks_blocked()
        assert list(self.lines) == []

    async def receive_all(self) -> list[Any]:
        """All messages received until all tasks are blocked."""
        await wait_all_tasks_blocked()
        found = [_message(line) for line in self.lines]
        self.lines.clear()
        return found

    async def wait_end(self) -> None:
        with trio.fail_after(_PATIENCE * 10):
            while not self.ended:
                await self._arrived.park()


def _message(line: bytes) -> Any:
    value = json.loads(line)
    if isinstance(value, list):
        return [_without_version(member) for member in value]
    return _without_version(value)


def _without_version(message: dict[str, Any]) -> dict[str, Any]:
    assert message.pop("jsonrpc") == "2.0"
    return message
