"""Client end of a Unix stream socket: newline-delimited JSON-RPC, as on the pipes of a process.

Each direction has its own EOF.
"""

from __future__ import annotations

import trio

from conductor.errors import ConnectionClosed
from conductor.network.tcp import Unreachable, describe_os_error
from conductor.remote.transport import RemoteTransport
from conductor.transport.base import CHUNK_SIZE

__all__ = ["run_transport"]


async def run_transport(transport: RemoteTransport) -> None:
    """Run a connection to `transport.location` until it ends. Raises `Unreachable`."""
    try:
        stream = await trio.open_unix_socket(transport.location)
    except OSError as exc:
        reason = describe_os_error(exc)
        raise Unreachable(f"could not be reached at {transport.location}: {reason}") from exc
    transport.reached = True
    async with stream, trio.open_nursery() as nursery:
        nursery.start_soon(_send, transport, stream)
        await _receive(transport, stream)
        nursery.cancel_scope.cancel()


async def _receive(transport: RemoteTransport, stream: trio.SocketStream) -> None:
    try:
        while chunk := await stream.receive_some(CHUNK_SIZE):
            await _write(transport, chunk)
    except trio.BrokenResourceError:
        transport.lost("it was cut")
        return
    except ConnectionClosed:
        return
    transport.end(f"closed the connection at {transport.location}")


async def _write(transport: RemoteTransport, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        written = transport.network.write_now((rest,))
        rest = rest[written:]
        if rest:
            await transport.network.wait_writable()


async def _send(transport: RemoteTransport, stream: trio.SocketStream) -> None:
    try:
        while chunk := await transport.network.receive():
            await stream.send_all(chunk)
        await stream.send_eof()
    except trio.BrokenResourceError:
        return  # handled by the receiving task
