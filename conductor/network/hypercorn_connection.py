"""Serve one HTTP connection with hypercorn: a client of `serve`, or an agent's MCP client.

hypercorn's own listener has no bound on connections. Its server of one connection keeps a
connection after EOF: until its idle timeout, and over HTTP/2 forever if a response is finished
after that, since the task that writes its last part has ended. It keeps a connection that begins
with the preface of HTTP/2 (without ALPN) forever if no request follows: it takes the preface for a
request of HTTP/1.1, which ends the idle time. And h2 receives a frame that is too large, up to
16 MiB, before it refuses it.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Final

import h2.exceptions
import h11
import trio
from h2.connection import H2Connection
from h2.frame_buffer import FrameBuffer
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Event, Updated
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext

__all__ = ["is_peer_gone", "serve_http"]

_PEER_GONE_ERRORS: Final = (
    OSError,  # ssl.SSLError is one
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    h2.exceptions.H2Error,
    h11.ProtocolError,
)


async def serve_http(
    app: Callable[[Any, Any, Any], Awaitable[None]], config: Config, stream: trio.abc.Stream
) -> None:
    """Answer the requests on a connection by an ASGI application, until it ends. Errors of a lost
    peer are raised (`is_peer_gone`)."""
    server = _HypercornServer(ASGIWrapper(app), config, WorkerContext(None), {}, stream)  # type: ignore[arg-type]
    await server.run()


def is_peer_gone(exc: BaseException, also: tuple[type[BaseException], ...] = ()) -> bool:
    """Whether an error only means a lost peer or a peer with another protocol."""
    if isinstance(exc, BaseExceptionGroup):
        return all(is_peer_gone(each, also) for each in exc.exceptions)
    if isinstance(exc, KeyError):  # hypercorn's, for data after the response
        frames = traceback.extract_tb(exc.__traceback__)
        return bool(frames) and "hypercorn" in frames[-1].filename
    return isinstance(exc, (*_PEER_GONE_ERRORS, *also))


class _BoundedFrames(FrameBuffer):
    """Received frames; one that is too large is refused when its length is known."""

    def __next__(self) -> Any:
        if len(self._data) >= 3:
            self._validate_frame_length(int.from_bytes(self._data[:3], "big"))
        return super().__next__()


class _HypercornServer(TCPServer):
    _peer_closed = False
    _is_http2 = False

    async def _read_data(self) -> None:
        await super()._read_data()
        self._peer_closed = True
        await self.idle_task.stop()
        for buffer in list(getattr(self.protocol.protocol, "stream_buffers", {}).values()):
            await buffer.close()

    async def _begin_http2(self, connection: H2Connection) -> None:
        """Called before the first bytes are sent or taken by h2."""
        connection.incoming_buffer = _BoundedFrames(server=True)
        if not connection.open_inbound_streams:  # an upgrade is a request
            await self.idle_task.restart(self._task_group, self._idle_timeout)

    async def protocol_send(self, event: Event) -> None:
        protocol = self.protocol.protocol
        if isinstance(protocol, H2Protocol) and not self._is_http2:
            self._is_http2 = True
            await self._begin_http2(protocol.connection)
        if not (self._peer_closed and isinstance(event, Updated)):  # which begins the idle time
            await super().protocol_send(event)
