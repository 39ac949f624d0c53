"""A TCP relay that cuts connections: at once, after `n` bytes, or silently."""

from __future__ import annotations

import socket as stdlib_socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import attrs
import trio

from conductor.background_tasks import background_tasks

_BROKEN = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)


@attrs.define(eq=False)
class Relay:
    """Between a client and the server at `target`; `port` is where it listens."""

    target: int
    budget: Callable[[], float] = lambda: float("inf")
    """After how many bytes, in both directions together, the next connection is lost."""
    chunk: int = 65536
    port: int = attrs.field(default=0, init=False)
    connections: int = attrs.field(default=0, init=False)
    passed: int = attrs.field(default=0, init=False)
    """Bytes so far."""
    _changed: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)
    _flow: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set unless all bytes are discarded."""
    _open: set[trio.SocketStream] = attrs.field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self._flow.set()

    def cut(self) -> None:
        """Reset every connection (RST at both ends)."""
        for stream in list(self._open):
            _reset(stream)

    def stop(self) -> None:
        """Stop relaying without closing: a pulled cable."""
        self._flow = trio.Event()

    def start(self) -> None:
        """Relay again; bytes in flight and the earlier connections are lost."""
        self.cut()
        self._flow.set()

    async def wait(self, *, connections: int = 0, passed: int = 0) -> None:
        """Wait for a number of connections and of relayed bytes."""
        while self.connections < connections or self.passed < passed:
            await self._changed.park()

    async def serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        self._changed.unpark_all()
        left = [self.budget()]
        with suppress(*_BROKEN):
            async with stream, await trio.open_tcp_stream("127.0.0.1", self.target) as onward:
                pair = {stream, onward}
                self._open |= pair
                try:
                    async with trio.open_nursery() as nursery:
                        for source, sink in ((stream, onward), (onward, stream)):
                            nursery.start_soon(self._copy, source, sink, left, nursery.cancel_scope)
                finally:
                    self._open -= pair
                    for each in pair:
                        _reset(each)

    async def _copy(
        self,
        source: trio.SocketStream,
        sink: trio.SocketStream,
        left: list[float],
        scope: trio.CancelScope,
    ) -> None:
        with suppress(*_BROKEN):
            while chunk := await source.receive_some(self.chunk):
                await self._flow.wait()
                self.passed += len(chunk)
                self._changed.unpark_all()
                left[0] -= len(chunk)
                if left[0] < 0:
                    await sink.send_all(chunk[: int(left[0])])
                    break
                await sink.send_all(chunk)
        scope.cancel()


@asynccontextmanager
async def relaying(target: str, **options: object) -> AsyncIterator[Relay]:
    """A relay to the server at this URL."""
    relay = Relay(int(target.rpartition(":")[2].removesuffix("/acp")), **options)  # type: ignore[arg-type]
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    relay.port = listener.socket.getsockname()[1]
    async with background_tasks() as nursery:
        nursery.start_soon(trio.serve_listeners, relay.serve, [listener])
        yield relay


def _reset(stream: trio.SocketStream) -> None:
    with suppress(OSError):
        linger = struct.pack("ii", 1, 0)
        stream.setsockopt(stdlib_socket.SOL_SOCKET, stdlib_socket.SO_LINGER, linger)
    stream.socket.close()
